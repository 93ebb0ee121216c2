#include "agent/snapshots/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace gradvane::agent {
namespace {

constexpr std::int64_t kHeadroom = 256 << 20;  // that stays free for others

std::optional<std::int64_t> number_in(const std::string& path) {
  std::int64_t value = 0;
  if (std::ifstream file(path); file >> value) return value;
  return std::nullopt;  // "max" is no number: there is no limit
}

/// Of "key value" lines.
std::optional<std::int64_t> value_of(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t value = 0;
    if (words >> key >> value && key == wanted) return value;
  }
  return std::nullopt;
}

std::optional<std::string> control_group(const std::string& root) {
  std::ifstream file(root + "proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return line.substr(3);
  return std::nullopt;
}

}  // namespace

std::int64_t available_memory(const std::string& root) {
  std::int64_t least = -1;
  const auto take = [&](std::int64_t bytes) {
    least =
        least < 0 ? std::max<std::int64_t>(bytes, 0) : std::clamp<std::int64_t>(bytes, 0, least);
  };
  if (const auto free = value_of(root + "proc/meminfo", "MemAvailable:")) take(*free * 1024);
  std::string path = control_group(root).value_or("");
  for (;;) {  // the limit of each group above counts
    const std::string folder = root + "sys/fs/cgroup" + path + (path.ends_with('/') ? "" : "/");
    const auto most = number_in(folder + "memory.max");
    const auto used = number_in(folder + "memory.current");
    // What only caches files is given up when others need it.
    if (most && used)
      take(*most - *used + value_of(folder + "memory.stat", "inactive_file").value_or(0));
    const auto slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return least;
    path.resize(slash);
  }
}

std::string memory_refusal(std::int64_t needed, const std::string& root) {
  const std::int64_t free = available_memory(root);
  if (free < 0 || needed + kHeadroom <= free) return {};
  const auto mib = [](std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  return "two snapshots need " + mib(needed) + " of memory more than they have, and " + mib(free) +
         " are available, of which " + mib(kHeadroom) +
         " stay free. Give the job more memory, or switch snapshots off";
}

}  // namespace gradvane::agent
