#include "exporters/files/live_runs.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "exporters/files/file_word.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/files/run_directory.hpp"
#include "exporters/files/safe_file.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestFile = 64UL * 1024;
constexpr std::size_t kMostLocks = 8192;

/// Asked with a shared lock: so two processes that ask at once do not see each other.
bool is_locked(int directory, const std::string& name, uid_t owner) noexcept {
  const OwnDescriptor file = open_regular(directory, name, O_RDONLY | O_CLOEXEC, owner);
  if (!file.is_open()) return false;
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  ::flock(file.get(), LOCK_UN);
  return false;
}

struct Owner {
  std::string run;
  std::string run_id;
};

/// Whether the process that wrote the file has ended: then who holds the lock now has just started. On this host only.
bool has_ended(const nlohmann::json& file, const std::string& host) {
  const auto there = file.find("host");
  const auto pid = file.find("pid");
  if (there == file.end() || *there != host || pid == file.end() || !pid->is_number_integer())
    return false;
  const auto number = pid->get<std::int64_t>();
  return number > 0 && number <= std::numeric_limits<pid_t>::max() &&
         ::kill(static_cast<pid_t>(number), 0) != 0 && errno == ESRCH;
}

/// Who wrote the endpoint file; absent if it cannot be read, or is one of a process before.
std::optional<Owner> owner_of(int directory, const std::string& name, const std::string& host,
                              uid_t owner) {
  const auto text = read_regular(directory, name, kLongestFile, owner);
  if (!text) return std::nullopt;
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object() || has_ended(json, host)) return std::nullopt;
  const auto run = json.find("run");
  const auto run_id = json.find("run_id");
  if (run == json.end() || run_id == json.end() || !run->is_string() || !run_id->is_string())
    return std::nullopt;
  return Owner{run->get<std::string>(), run_id->get<std::string>()};
}

}  // namespace

std::optional<std::string> holder_of_name(const fs::path& named, const record::RunInfo& run,
                                          bool has_shared_id, uid_t owner) {
  const auto directory =
      named.empty()
          ? open_private_directory(fs::absolute(temporary_directory()),
                                   runs_of_user(owner) / file_word(run.run), owner, Missing::stays)
          : open_named_directory(named, owner, Missing::stays);
  if (!directory.descriptor.is_open()) return std::nullopt;
  const int descriptor = directory.descriptor.get();
  const std::string own_lock = "rank" + std::to_string(run.rank) + ".lock";
  for (const std::string& name : names_in(descriptor, kMostLocks)) {
    if (!name.starts_with("rank") || !name.ends_with(".lock")) continue;
    const bool is_own_rank = name == own_lock;
    if (!is_own_rank && !has_shared_id) continue;
    if (!is_locked(descriptor, name, owner)) continue;
    const std::string rank = name.substr(0, name.size() - std::string_view(".lock").size());
    const auto other = owner_of(descriptor, "endpoint." + rank + ".json", run.host, owner);
    // A process that holds the lock and has no file yet is just starting.
    if (!other) {
      if (is_own_rank) return std::string();
      continue;
    }
    if (other->run == run.run && (is_own_rank || other->run_id != run.run_id)) return other->run_id;
  }
  return std::nullopt;
}

}  // namespace gradvane::exporters
