#include "exporters/recorder/disk_ring.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "exporters/files/file_signals.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/files/safe_file.hpp"

namespace gradvane::exporters::recording {

std::filesystem::path DiskRing::previous_path(const std::filesystem::path& path) {
  std::filesystem::path previous = path;
  previous.replace_filename(path.stem().string() + ".previous" + path.extension().string());
  return previous;
}

bool DiskRing::open() noexcept try {
  const FileSignalsBlocked signals;
  close();
  const int directory = directory_->use();
  return directory >= 0 && make(directory);
} catch (...) {
  errno = ENOMEM;
  return false;
}

bool DiskRing::make(int directory) {
  // The new file gets its place before it gets its name: on a disk without room, the old one stays.
  NewFile file = create_beside(directory, name_, 0600);
  if (!file.descriptor.is_open()) return false;
  struct stat made{};
  if (::fstat(file.descriptor.get(), &made) == 0 && allocate(directory, file.descriptor.get())) {
    const std::string previous = previous_path(name_).string();
    if (!has_ours(directory))  // there may be none
      ::renameat(directory, name_.c_str(), directory, previous.c_str());
    if (::renameat(directory, file.name.c_str(), directory, name_.c_str()) == 0) {
      file_ = std::move(file.descriptor);
      device_ = made.st_dev;
      number_ = made.st_ino;
      written_ = 0;
      return true;
    }
  }
  const int error = errno;
  ::unlinkat(directory, file.name.c_str(), 0);
  errno = error;
  return false;
}

bool DiskRing::allocate(int directory, int file) noexcept {
  constexpr int kTries = 100;  // a signal may interrupt it, and an interval timer again and again
  const auto size = static_cast<off_t>(kFileHeaderSize + header_.ring_size);
  int result = -1;
  errno = EINTR;
  if (is_in_memory(directory))
    errno = EOPNOTSUPP;
  else
    for (int i = 0; i < kTries && result != 0 && errno == EINTR; ++i)
      result = ::fallocate(file, 0, 0, size);
  // Not posix_fallocate(): where the file system has no such call, that writes every block, over a network.
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) result = ::ftruncate(file, size);
  return result == 0 && write_at(file, bytes_of(header_), 0);
}

bool DiskRing::append(std::string_view frames) noexcept {
  if (!is_open()) return false;
  if (frames.size() > most_at_once()) {
    errno = EMSGSIZE;
    return false;
  }
  const FileSignalsBlocked signals;
  struct stat status{};
  bool ok = ::fstat(file_.get(), &status) == 0;
  if (ok && status.st_nlink == 0) {  // it was removed: nobody will find what we write
    errno = ENOENT;
    ok = false;
  }
  const std::uint64_t begin = written_ % size();
  const std::size_t to_end =
      static_cast<std::size_t>(std::min<std::uint64_t>(size() - begin, frames.size()));
  ok = ok && write_at(file_.get(), frames.substr(0, to_end), kFileHeaderSize + begin) &&
       write_at(file_.get(), frames.substr(to_end), kFileHeaderSize);
  if (ok) {
    written_ += frames.size();
    return true;
  }
  const int error = errno;
  close();
  errno = error;
  return false;
}

void DiskRing::remove() noexcept try {
  close();
  const int directory = directory_->use();
  if (directory < 0) return;
  if (has_ours(directory)) ::unlinkat(directory, name_.c_str(), 0);
  ::unlinkat(directory, previous_path(name_).c_str(), 0);
} catch (...) {  // a file too many is no harm
}

bool DiskRing::has_ours(int directory) const noexcept {
  struct stat named{};
  return number_ != 0 && ::fstatat(directory, name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         named.st_dev == device_ && named.st_ino == number_;
}

bool DiskRing::write_at(int file, std::string_view bytes, std::uint64_t offset) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
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

}  // namespace gradvane::exporters::recording
