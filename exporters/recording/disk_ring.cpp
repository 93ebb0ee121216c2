#include "exporters/recording/disk_ring.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "exporters/recording/file_signals.hpp"

namespace gradvane::exporters::recording {

std::filesystem::path DiskRing::previous_path(const std::filesystem::path& path) {
  std::filesystem::path previous = path;
  previous.replace_filename(path.stem().string() + ".previous" + path.extension().string());
  return previous;
}

bool DiskRing::open() noexcept try {
  const FileSignalsBlocked signals;
  close();
  // The new file gets its place before it gets its name: on a disk without room, the old one stays.
  const std::string temporary = path_.string() + ".new";
  ::unlink(temporary.c_str());
  descriptor_ = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) return false;
  if (allocate()) {
    if (!is_ours_) ::rename(path_.c_str(), previous_path(path_).c_str());  // there may be none
    if (::rename(temporary.c_str(), path_.c_str()) == 0) return is_ours_ = true;
  }
  const int error = errno;
  close();
  ::unlink(temporary.c_str());
  errno = error;
  return false;
} catch (...) {
  errno = ENOMEM;
  return false;
}

bool DiskRing::allocate() noexcept {
  constexpr int kTries = 100;  // a signal may interrupt it, and an interval timer again and again
  const auto size = static_cast<off_t>(kFileHeaderSize + header_.ring_size);
  int error = EINTR;
  for (int i = 0; i < kTries && error == EINTR; ++i)
    error = ::posix_fallocate(descriptor_, 0, size);
  if (error != 0) {
    errno = error;
    return false;
  }
  written_ = 0;
  return write_at(bytes_of(header_), 0);
}

bool DiskRing::append(std::string_view frames) noexcept {
  if (!is_open()) return false;
  if (frames.size() > most_at_once()) {
    errno = EMSGSIZE;
    return false;
  }
  const FileSignalsBlocked signals;
  struct stat status{};
  bool ok = ::fstat(descriptor_, &status) == 0;
  if (ok && status.st_nlink == 0) {  // its directory was removed: nobody will find what we write
    errno = ENOENT;
    ok = false;
  }
  const std::uint64_t begin = written_ % size();
  const std::size_t to_end =
      static_cast<std::size_t>(std::min<std::uint64_t>(size() - begin, frames.size()));
  ok = ok && write_at(frames.substr(0, to_end), kFileHeaderSize + begin) &&
       write_at(frames.substr(to_end), kFileHeaderSize);
  if (ok) {
    written_ += frames.size();
    return true;
  }
  const int error = errno;
  close();
  errno = error;
  return false;
}

bool DiskRing::write_at(std::string_view bytes, std::uint64_t offset) noexcept {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (count == 0) errno = ENOSPC;
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

void DiskRing::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace gradvane::exporters::recording
