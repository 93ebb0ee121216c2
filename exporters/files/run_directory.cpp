#include "exporters/files/run_directory.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "exporters/files/file_word.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/files/safe_file.hpp"

namespace gradvane::exporters {

namespace fs = std::filesystem;

namespace {

fs::path wished_temporary_directory() {
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
}

}  // namespace

fs::path runs_of_user(uid_t owner) { return "gradvane-" + std::to_string(owner); }

fs::path temporary_directory() {
  fs::path wished = wished_temporary_directory();
  std::error_code ignored;
  return fs::is_directory(wished, ignored) ? wished : "/tmp";
}

fs::path default_run_directory(std::string_view run) {
  return wished_temporary_directory() / runs_of_user(::geteuid()) / file_word(run);
}

RunDirectory::RunDirectory(RunDirectoryOptions options)
    : options_(std::move(options)), base_(wished_temporary_directory()) {
  // A program may change its working directory later.
  std::error_code ignored;
  if (!options_.named.empty()) options_.named = fs::absolute(options_.named, ignored);
  base_ = fs::absolute(base_, ignored);
  (void)claim();
}

int RunDirectory::use() noexcept try {
  errno = ECANCELED;
  if (is_released_ || pid_ != ::getpid()) return -1;
  if (is_there() || claim()) return directory_.get();
  return -1;
} catch (...) {
  errno = ENOMEM;
  return -1;
}

void RunDirectory::release() noexcept {
  is_released_ = true;
  if (!directory_.is_open()) return;
  lock_.release(directory_.get());
  directory_.close();
  if (is_shared_name_) return;
  // Nobody else comes to this name. It goes unless there are files in it.
  if (::rmdir(path_.c_str()) == 0) path_.clear();
}

/// By its path too: what is written into a directory that was moved away is found by nobody.
bool RunDirectory::is_there() const noexcept {
  struct stat open{};
  struct stat named{};
  return directory_.is_open() && ::fstat(directory_.get(), &open) == 0 &&
         ::stat(path_.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

Locked RunDirectory::try_lock(int directory) noexcept {
  return lock_.take(directory, options_.lock_name, options_.owner, options_.lock);
}

void RunDirectory::adopt(OwnDescriptor descriptor, fs::path path) {
  directory_ = std::move(descriptor);
  path_ = std::move(path);
}

bool RunDirectory::claim() {
  note_.clear();
  path_.clear();
  directory_.close();
  lock_ = {};
  const fs::path below = runs_of_user(options_.owner) / file_word(options_.run);
  const fs::path wished = options_.named.empty() ? base_ / below : options_.named;
  auto opened = options_.named.empty()
                    ? open_private_directory(base_, below, options_.owner, Missing::is_made)
                    : open_named_directory(wished, options_.owner, Missing::is_made);
  Locked locked = Locked::failed;
  int code = opened.code == 0 ? EPERM : opened.code;
  std::string why = opened.error;
  if (opened.descriptor.is_open()) {
    locked = try_lock(opened.descriptor.get());
    code = errno;
    if (locked == Locked::busy) why = "another process uses " + wished.string();
    if (locked == Locked::unsupported) why = "there are no file locks in " + wished.string();
    if (locked == Locked::failed) why = wished.string() + ": " + std::strerror(code);
  }
  is_shared_name_ = is_as_named_ = locked == Locked::yes;
  if (is_shared_name_) {
    adopt(std::move(opened.descriptor), wished);
    return true;
  }
  is_as_named_ = claim_own_name(locked != Locked::unsupported);
  const bool is_claimed = is_as_named_ || (options_.has_fallback && claim_random_name());
  note_ = std::move(why);
  if (!is_claimed) errno = code;
  return is_claimed;
}

bool RunDirectory::claim_own_name(bool has_locks) {
  constexpr int kMostOfOneProcess = 100;
  const std::string name = file_word(options_.run) + '.' + std::to_string(pid_);
  const fs::path base = options_.named.empty() ? base_ : options_.named;
  const fs::path below = options_.named.empty() ? runs_of_user(options_.owner) : fs::path();
  for (int i = 1; i <= kMostOfOneProcess; ++i) {
    std::string own = name;
    // Process numbers repeat between machines and containers that share the directory.
    if (!has_locks) own += '.' + random_word();
    if (has_locks && i > 1) own += '-' + std::to_string(i);
    auto opened = open_private_directory(base, below / own, options_.owner, Missing::is_made);
    if (!opened.descriptor.is_open()) return false;
    const Locked locked = try_lock(opened.descriptor.get());
    if (locked == Locked::failed) return false;
    if (locked == Locked::yes || !has_locks) {
      adopt(std::move(opened.descriptor), base / below / own);
      return true;
    }
  }
  return false;
}

bool RunDirectory::claim_random_name() {
  const fs::path base = temporary_directory();
  const fs::path below = fs::path(runs_of_user(options_.owner).string() + '.' + random_word()) /
                         file_word(options_.run);
  auto opened = open_private_directory(base, below, options_.owner, Missing::is_made);
  if (!opened.descriptor.is_open()) return false;
  (void)try_lock(opened.descriptor.get());  // nobody else knows the name
  adopt(std::move(opened.descriptor), base / below);
  return true;
}

}  // namespace gradvane::exporters
