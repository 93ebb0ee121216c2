#include "exporters/http/unix_address.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "exporters/files/own_descriptor.hpp"
#include "exporters/http/unix_socket.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::size_t kLongestPath = 100;
constexpr std::chrono::milliseconds kLockPause{10};
constexpr int kLockTries = 50;

enum class Found { nothing, dead_socket, live_socket, another_file };

/// Two processes that find the same dead socket must not both replace it: the second would take away the first one's.
/// The lock is on the directory, so that no file is needed. Any user may hold it for ever; then we go on without.
class DirectoryLock {
 public:
  explicit DirectoryLock(int directory) noexcept : directory_(directory) {
    for (int i = 0; i < kLockTries && ::flock(directory, LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK) return;
      std::this_thread::sleep_for(kLockPause);
    }
  }
  ~DirectoryLock() { ::flock(directory_, LOCK_UN); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int directory_;
};

Found look(int directory, const std::string& name) noexcept {
  struct stat status{};
  if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? Found::nothing : Found::another_file;
  if (!S_ISSOCK(status.st_mode)) return Found::another_file;
  const int connection = connect_to_unix(directory, name);
  // EAGAIN: so many wait there that no more are taken. EACCES: another user's, live or not.
  if (connection < 0) return errno == ECONNREFUSED ? Found::dead_socket : Found::live_socket;
  ::close(connection);
  return Found::live_socket;
}

}  // namespace

bool is_unix_address(std::string_view address) noexcept {
  if (!address.starts_with(kUnix)) return false;
  address.remove_prefix(kUnix.size());
  return address.starts_with('/') && !address.ends_with('/') && address.size() <= kLongestPath &&
         std::ranges::all_of(address,
                             [](unsigned char c) { return c != ':' && c >= ' ' && c != '\x7f'; });
}

int UnixName::listen(std::string_view address, int tries, int backlog) {
  const std::filesystem::path path(address.substr(kUnix.size()));
  const std::string folder = path.parent_path().string();
  const OwnDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) {
    error_ = "cannot open the directory " + folder + ": " + std::strerror(errno);
    return -1;
  }
  const DirectoryLock lock(directory.get());
  for (int i = 0; i < tries; ++i) {
    const std::string suffix = i == 0 ? "" : '.' + std::to_string(i);
    const std::string name = path.filename().string() + suffix;
    const Found found = look(directory.get(), name);
    if (found == Found::live_socket) continue;
    if (found == Found::another_file) {
      error_ = path.string() + suffix + " is there already and is no socket";
      return -1;
    }
    const int descriptor = listen_on_unix(directory.get(), name, backlog);
    struct stat status{};
    if (descriptor < 0 ||
        ::fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      error_ = "cannot listen on " + path.string() + suffix + ": " + std::strerror(errno);
      if (descriptor >= 0) ::close(descriptor);
      return -1;
    }
    device_ = status.st_dev;
    inode_ = status.st_ino;
    address_ = std::string(address) + suffix;
    return descriptor;
  }
  error_ = "other processes listen on " + path.string() +
           (tries > 1 ? " to ." + std::to_string(tries - 1) : std::string());
  return -1;
}

void UnixName::remove() noexcept {
  if (address_.empty()) return;
  const char* path = address_.c_str() + kUnix.size();
  struct stat status{};
  if (::lstat(path, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_)
    ::unlink(path);
}

}  // namespace gradvane::exporters
