#include "exporters/files/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace gradvane::exporters {

Locked lock_file(int descriptor) noexcept {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return Locked::busy;
    const bool has_none =
        errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
    return has_none ? Locked::unsupported : Locked::failed;
  }
  return Locked::yes;
}

Locked FileLock::take(int directory, const std::string& name, uid_t owner, LockCall lock) noexcept
    try {
  constexpr int kTries = 20;
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  for (int i = 0; i < kTries; ++i) {
    OwnDescriptor file(::openat(directory, name.c_str(), kFlags, 0600));
    if (!file.is_open()) {
      const bool is_in_the_way = errno == ELOOP || errno == EISDIR || errno == ENXIO;
      return is_in_the_way ? Locked::busy : Locked::failed;
    }
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) return Locked::failed;
    if (!S_ISREG(status.st_mode) || status.st_uid != owner) return Locked::busy;
    const Locked locked = lock(file.get());
    if (locked == Locked::unsupported) ::unlinkat(directory, name.c_str(), 0);
    if (locked != Locked::yes) return locked;
    // Who held it may have removed the file between our open and our lock: then it locks nothing.
    if (!file.is_open() || !file.is_named(directory, name.c_str())) continue;
    name_ = name;
    file_ = std::move(file);
    return Locked::yes;
  }
  return Locked::busy;
} catch (...) {
  errno = ENOMEM;
  return Locked::failed;
}

void FileLock::release(int directory) noexcept {
  if (!file_.is_open()) return;
  if (file_.is_named(directory, name_.c_str())) ::unlinkat(directory, name_.c_str(), 0);
  // Said to the kernel, and not left to close(): a copy of the descriptor may live on in a process that was
  // made without fork's handlers.
  ::flock(file_.get(), LOCK_UN);
  file_.close();
}

}  // namespace gradvane::exporters
