#include "exporters/step_log/line_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "exporters/files/file_signals.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;

constexpr int kMostOfOneProcess = 100;

fs::path own_path(const fs::path& path, int number) {
  std::string word = '.' + std::to_string(::getpid());
  if (number > 1) word += '-' + std::to_string(number);
  fs::path own = path;
  own.replace_filename(path.stem().string() + word + path.extension().string());
  return own;
}

bool is_device_path(const fs::path& path) {
  std::error_code ignored;
  const std::string whole = fs::absolute(path, ignored).lexically_normal().string();
  return whole.starts_with("/dev/") || whole.starts_with("/proc/");
}

/// Whether `path` names the file that is open, and not another one that was put in its place.
bool is_at(int file, const fs::path& path) {
  struct stat open{};
  struct stat named{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

LineFile::LineFile(const fs::path& path, std::int64_t max_bytes, int keep, LockCall lock)
    : path_(path.empty() ? path : fs::absolute(path)),  // the program may change its folder
      max_bytes_(max_bytes),
      keep_(keep),
      lock_(lock),
      is_device_(is_device_path(path_)) {}

bool LineFile::open() noexcept try {
  const FileSignalsBlocked signals;
  return file_.is_open() || (open_path() && end_torn_line());
} catch (...) {
  errno = ENOMEM;
  return false;
}

bool LineFile::open_path() {
  Locked locked = Locked::yes;
  if (open_one(path_, locked)) return true;
  for (int i = 1; i <= kMostOfOneProcess && locked == Locked::busy; ++i) {
    fs::path own = own_path(path_, i);
    if (!open_one(own, locked)) continue;
    path_ = std::move(own);
    return true;
  }
  return false;
}

/// Write-only and non-blocking: opening a pipe that nobody reads is an error and not a wait, and one that the
/// reader left breaks, for the program too, since we hold no end to read from.
bool LineFile::open_one(const fs::path& path, Locked& locked) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  constexpr int kTries = 20;
  locked = Locked::failed;
  for (int i = 0; i < kTries; ++i) {
    OwnDescriptor file(::open(path.c_str(), is_device_ ? kFlags & ~O_CREAT : kFlags, 0644));
    struct stat status{};
    if (!file.is_open() || ::fstat(file.get(), &status) != 0) return false;
    is_regular_ = S_ISREG(status.st_mode) && !is_device_;
    if (is_regular_) {
      locked = lock_(file.get());
      if (locked == Locked::busy || locked == Locked::failed) return false;
      // Who had it may have rotated it between our open and our lock.
      if (!is_at(file.get(), path)) continue;
      // What was written since we looked is in front of ours.
      if (::fstat(file.get(), &status) != 0) return false;
    }
    size_ = is_regular_ ? status.st_size : 0;
    rest_.clear();
    file_ = std::move(file);
    return true;
  }
  errno = EAGAIN;
  return false;
}

/// An unfinished line, of a process that was killed over it, must not swallow our first.
bool LineFile::end_torn_line() {
  if (!is_regular_ || size_ == 0) return true;
  const OwnDescriptor read(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  char last = '\n';
  if (!read.is_open() || !is_at(read.get(), path_)) return true;
  return ::pread(read.get(), &last, 1, size_ - 1) != 1 || last == '\n' || write_whole("\n");
}

void LineFile::close() noexcept {
  // A child that was forked a moment ago may not have closed its copy yet, and would hold the lock.
  if (is_regular_ && file_.is_open()) ::flock(file_.get(), LOCK_UN);
  file_.close();
}

bool LineFile::append(std::string_view line) noexcept try {
  if (!open()) return false;
  const FileSignalsBlocked signals;
  if (!is_regular_) return write_to_pipe(line);
  const auto length = static_cast<std::int64_t>(line.size());
  if (max_bytes_ > 0 && size_ > 0 && size_ + length > max_bytes_ && !rotate()) return false;
  return write_whole(line);
} catch (...) {
  errno = ENOMEM;
  return false;
}

bool LineFile::write_whole(std::string_view line) noexcept {
  ssize_t written = 0;
  do {
    written = ::write(file_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) {
    size_ += written;
    return true;
  }
  const int error = errno;
  if (written > 0) {
    // The offset is the end of what we wrote. Where the file goes on after it, someone else wrote since, and
    // cutting would take theirs.
    const off_t end = ::lseek(file_.get(), 0, SEEK_CUR);
    struct stat status{};
    const bool is_tail =
        end >= written && ::fstat(file_.get(), &status) == 0 && status.st_size == end;
    if (!is_tail || ::ftruncate(file_.get(), end - written) != 0) close();  // open() ends the line
  }
  if (written < 0 && error != ENOSPC && error != EAGAIN) close();  // start from the path next time
  errno = written < 0 ? error : ENOSPC;
  return false;
}

/// What a pipe took cannot be taken back: the rest of the line goes before the next one.
bool LineFile::write_to_pipe(std::string_view line) {
  const auto put = [&](std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return bytes;
  };
  const auto give_up = [&] {
    if (errno != EAGAIN && errno != ENOSPC) close();  // its reader went
    return false;
  };
  if (!rest_.empty()) {
    const std::size_t left = put(rest_).size();
    rest_.erase(0, rest_.size() - left);
    if (left > 0) return give_up();
  }
  const std::string_view left = put(line);
  if (left.empty()) return true;
  if (left.size() < line.size()) rest_ = left;
  // The rest is on its way, so the line counts as written as long as the pipe is there.
  if (left.size() < line.size() && errno == EAGAIN) return true;
  return give_up();
}

/// PATH.1 becomes PATH.2 and so on; the last one goes. The old file stays locked until the new one is.
bool LineFile::rotate() {
  struct stat named{};
  if (::lstat(path_.c_str(), &named) == 0 && !S_ISREG(named.st_mode)) return true;  // a link
  if (!is_at(file_.get(),
             path_)) {  // it was moved away, and the name may be another process's by now
    close();
    return open_path();
  }
  const auto numbered = [&](int i) {
    return i == 0 ? path_.string() : path_.string() + '.' + std::to_string(i);
  };
  if (keep_ <= 0 && ::unlink(path_.c_str()) != 0 && errno != ENOENT) return false;
  for (int i = keep_ - 1; i >= 0; --i)
    if (::rename(numbered(i).c_str(), numbered(i + 1).c_str()) != 0 && i == 0 && errno != ENOENT)
      return false;
  const OwnDescriptor before = std::move(file_);
  return open_path();
}

}  // namespace gradvane::exporters
