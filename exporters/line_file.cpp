#include "exporters/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace gradvane::exporters {

LineFile::LineFile(std::filesystem::path path, std::int64_t max_bytes, int keep)
    : path_(std::move(path)), max_bytes_(max_bytes), keep_(keep) {}

LineFile::~LineFile() { close(); }

bool LineFile::open() noexcept {
  if (descriptor_ >= 0) return true;
  // Non-blocking, so that a pipe nobody reads from is an error and not a wait.
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (descriptor_ < 0) return false;
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    close();
    return false;
  }
  is_regular_ = S_ISREG(status.st_mode);
  size_ = is_regular_ ? status.st_size : 0;
  char last = '\n';
  if (size_ > 0 && ::pread(descriptor_, &last, 1, size_ - 1) == 1 && last != '\n') {
    return write_whole("\n");  // somebody else's unfinished line must not swallow our first
  }
  return true;
}

bool LineFile::append(std::string_view line) noexcept {
  if (!open()) return false;
  const auto length = static_cast<std::int64_t>(line.size());
  if (is_regular_ && max_bytes_ > 0 && size_ > 0 && size_ + length > max_bytes_ && !rotate()) {
    return false;
  }
  return write_whole(line);
}

void LineFile::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

bool LineFile::write_whole(std::string_view line) noexcept {
  ssize_t written = 0;
  do {
    written = ::write(descriptor_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) {
    size_ += written;
    return true;
  }
  const int error = errno;
  if (written > 0 && is_regular_ && ::ftruncate(descriptor_, size_) != 0) {
    size_ += written;  // the torn line could not be taken back; the next open() ends it
    close();
  }
  if (written < 0 && error != ENOSPC && error != EAGAIN) close();  // start from the path next time
  errno = written < 0 ? error : ENOSPC;
  return false;
}

/// PATH.1 becomes PATH.2 and so on; the last one goes.
bool LineFile::rotate() noexcept try {
  const auto numbered = [&](int i) {
    return i == 0 ? path_.string() : path_.string() + '.' + std::to_string(i);
  };
  close();
  if (keep_ <= 0) {
    if (::unlink(path_.c_str()) != 0) return false;
    return open();
  }
  for (int i = keep_ - 1; i >= 0; --i) {
    if (::rename(numbered(i).c_str(), numbered(i + 1).c_str()) != 0 && i == 0) return false;
  }
  return open();
} catch (...) {
  return false;
}

}  // namespace gradvane::exporters
