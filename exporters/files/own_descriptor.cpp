#include "exporters/files/own_descriptor.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

namespace gradvane::exporters {
namespace {

constexpr int kFree = 0;  ///< else a descriptor plus one: zero is what the table begins with
constexpr int kClosedInChild = -1;  ///< the object still has the place

// A table of plain integers: the handler may only make calls that are safe in a child of a process with
// threads, so it can neither lock nor follow pointers that another thread was changing.
constinit std::array<std::atomic<int>, OwnDescriptor::kMost> table{};
static_assert(std::atomic<int>::is_always_lock_free);

void close_all_in_child() {
  for (auto& place : table) {
    const int entry = place.load();
    if (entry <= kFree) continue;
    place.store(kClosedInChild);
    ::close(entry - 1);
  }
}

int first_number() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return OwnDescriptor::kFirst;
  const auto middle = static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, OwnDescriptor::kFirst));
  return std::max(middle, STDERR_FILENO + 1);
}

std::atomic<int>& at(int place) { return table[static_cast<std::size_t>(place)]; }

}  // namespace

OwnDescriptor::OwnDescriptor(int descriptor) noexcept {
  if (descriptor >= 0 && identify(descriptor)) keep(descriptor);
}

OwnDescriptor::OwnDescriptor(int descriptor, int directory, const char* name) noexcept {
  if (descriptor < 0 || !identify(descriptor)) return;
  if (is_named(directory, name))
    keep(descriptor);
  else
    errno = EBADF;
}

bool OwnDescriptor::identify(int descriptor) noexcept {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return false;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return true;
}

void OwnDescriptor::keep(int descriptor) noexcept {
  const int above = ::fcntl(descriptor, F_DUPFD_CLOEXEC, first_number());
  if (above >= 0 && !is_same_file(above)) {
    ::close(above);
    errno = EBADF;
    return;
  }
  // What a program that was started without standard streams prints to 1 and 2 must not get into our files.
  if (above >= 0 || descriptor <= STDERR_FILENO) {
    const int error = errno;
    if (is_same_file(descriptor)) ::close(descriptor);
    errno = error;
    if (above < 0) return;
    descriptor = above;
  }
  static const int kRegistered = ::pthread_atfork(nullptr, nullptr, close_all_in_child);
  for (int i = 0; kRegistered == 0 && i < kMost; ++i) {
    int expected = kFree;
    if (!at(i).compare_exchange_strong(expected, descriptor + 1)) continue;
    place_ = i;
    return;
  }
  ::close(descriptor);
  errno = EMFILE;
}

OwnDescriptor& OwnDescriptor::operator=(OwnDescriptor&& other) noexcept {
  if (this == &other) return *this;
  close();
  place_ = std::exchange(other.place_, -1);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

int OwnDescriptor::get() const noexcept {
  if (place_ < 0) return -1;
  const int entry = at(place_).load();
  return entry > kFree && is_same_file(entry - 1) ? entry - 1 : -1;
}

bool OwnDescriptor::is_named(int directory, const char* name) const noexcept {
  struct stat status{};
  return ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         status.st_dev == device_ && status.st_ino == inode_;
}

bool OwnDescriptor::close() noexcept {
  if (place_ < 0) return true;
  const int entry = at(std::exchange(place_, -1)).exchange(kFree);
  return entry <= kFree || !is_same_file(entry - 1) || ::close(entry - 1) == 0;
}

bool OwnDescriptor::is_same_file(int descriptor) const noexcept {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

}  // namespace gradvane::exporters
