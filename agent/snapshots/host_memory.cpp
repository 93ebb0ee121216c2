#include "agent/snapshots/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
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

/// The files of one version of control groups.
struct Files {
  std::string mount;
  std::string limit;
  std::string usage;
  std::string
      cache;  ///< of memory.stat: what only caches files, and is given up when others need it
};

/// What the limit of the group at `path` and of each above it leaves.
void take_groups(const Files& files, std::string path,
                 const std::function<void(std::int64_t)>& take) {
  for (;;) {
    const std::string folder = files.mount + path + (path.ends_with('/') ? "" : "/");
    const auto most = number_in(folder + files.limit);
    const auto used = number_in(folder + files.usage);
    if (most && used)
      take(*most - *used + value_of(folder + "memory.stat", files.cache).value_or(0));
    const auto slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

/// Whether one of the names between commas is this one.
bool has_name(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

std::int64_t available_memory(const std::string& root) {
  std::int64_t least = -1;
  const auto take = [&](std::int64_t bytes) {
    least =
        least < 0 ? std::max<std::int64_t>(bytes, 0) : std::clamp<std::int64_t>(bytes, 0, least);
  };
  if (const auto free = value_of(root + "proc/meminfo", "MemAvailable:")) take(*free * 1024);
  const std::string mount = root + "sys/fs/cgroup";
  std::ifstream file(root + "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // number:controllers:path
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      take_groups({mount, "memory.max", "memory.current", "inactive_file"}, path, take);
    else if (has_name(controllers, "memory"))
      take_groups({mount + "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                   "total_inactive_file"},
                  path, take);
  }
  return least;
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
