#include "exporters/files/old_runs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "exporters/files/file_lock.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/files/run_directory.hpp"
#include "exporters/files/safe_file.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::size_t kMostDirectories = 4096;
constexpr std::size_t kMostFilesOfRun = 1024;  ///< in each

bool is_ring(const std::string& name) {
  return name.ends_with(".ring.gvrec") || name.ends_with(".ring.previous.gvrec") ||
         (name.starts_with('.') && name.ends_with(".part"));
}
bool is_lock(const std::string& name) { return name.ends_with(".lock"); }
bool is_endpoint(const std::string& name) {
  return (name.starts_with("endpoint.rank") || name.starts_with("node.")) &&
         name.ends_with(".json");
}
bool is_socket(const std::string& name) {
  return name.starts_with("rank") && name.ends_with(".sock");
}

/// The lock that a process with this ring holds; empty where the name is not that of a ring.
std::string lock_of(const std::string& ring) {
  const auto end = ring.rfind(".ring.");
  const auto begin = ring.rfind(".rank", end);
  if (end == std::string::npos || begin == std::string::npos) return {};
  return ring.substr(begin + 1, end - begin - 1) + ".lock";
}

struct Cleaner {
  uid_t owner;
  time_t before;

  [[nodiscard]] bool is_old(int directory, const std::string& name) const {
    struct stat status{};
    return ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           (is_socket(name) ? S_ISSOCK(status.st_mode) : S_ISREG(status.st_mode)) &&
           status.st_uid == owner && status.st_mtime < before;
  }

  /// Takes every lock of the directory: nobody writes there then, and a run that begins meanwhile takes
  /// another name.
  [[nodiscard]] bool take_locks(int directory, const std::vector<std::string>& names,
                                std::vector<FileLock>& locks) const {
    std::set<std::string> wanted;
    for (const std::string& name : names) {
      if (is_lock(name)) wanted.insert(name);
      if (const std::string lock = lock_of(name); !lock.empty()) wanted.insert(lock);
    }
    return std::ranges::all_of(wanted, [&](const std::string& name) {
      locks.emplace_back();
      return locks.back().take(directory, name, owner) == Locked::yes;
    });
  }

  /// `is_left` is set where nothing of use is in the directory afterwards.
  int clean(int directory, bool& is_left) const {
    const std::vector<std::string> names = names_in(directory, kMostFilesOfRun);
    const auto may_go = [&](const std::string& name) {
      return is_ring(name) && is_old(directory, name);
    };
    const auto is_of_no_use = [&](const std::string& name) {
      const bool is_leftover = is_lock(name) || is_endpoint(name) || is_socket(name);
      return may_go(name) || (is_leftover && is_old(directory, name));
    };
    is_left = names.size() < kMostFilesOfRun && std::ranges::all_of(names, is_of_no_use) &&
              !names.empty();
    if (!is_left && std::ranges::none_of(names, may_go)) return 0;
    std::vector<FileLock> locks;
    if (!take_locks(directory, names, locks)) {
      is_left = false;
      return 0;
    }
    int removed = 0;
    for (const std::string& name : names) {
      const bool goes = is_left ? !is_lock(name) : may_go(name);
      if (goes && ::unlinkat(directory, name.c_str(), 0) == 0 && is_ring(name)) ++removed;
    }
    for (FileLock& lock : locks) lock.release(directory);
    return removed;
  }
};

}  // namespace

int remove_old_rings(const std::filesystem::path& base, uid_t owner, std::chrono::seconds age) {
  const auto runs = open_private_directory(base, runs_of_user(owner), owner, Missing::stays);
  if (!runs.descriptor.is_open()) return 0;
  const Cleaner cleaner{.owner = owner, .before = std::time(nullptr) - age.count()};
  int removed = 0;
  for (const std::string& name : names_in(runs.descriptor.get(), kMostDirectories)) {
    const auto run =
        open_private_directory(base, runs_of_user(owner) / name, owner, Missing::stays);
    if (!run.descriptor.is_open()) continue;
    bool is_left = false;
    removed += cleaner.clean(run.descriptor.get(), is_left);
    if (is_left) (void)::unlinkat(runs.descriptor.get(), name.c_str(), AT_REMOVEDIR);
  }
  return removed;
}

}  // namespace gradvane::exporters
