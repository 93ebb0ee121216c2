#include "exporters/files/safe_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>

namespace gradvane::exporters {

OwnDescriptor open_regular(int directory, const std::string& name, int flags,
                           uid_t owner) noexcept {
  OwnDescriptor file(
      ::openat(directory, name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file.is_open()) return file;
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return {};
  const bool is_regular = S_ISREG(status.st_mode);
  if (is_regular && status.st_uid == owner) return file;
  file.close();
  errno = is_regular ? EPERM : EINVAL;
  return file;
}

std::optional<std::string> read_regular(int directory, const std::string& name, std::size_t limit,
                                        uid_t owner) {
  const OwnDescriptor file = open_regular(directory, name, O_RDONLY, owner);
  if (!file.is_open()) return {};
  std::string text(limit + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return {};
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
  }
  if (length > limit) {
    errno = EFBIG;
    return {};
  }
  text.resize(length);
  return text;
}

NewFile create_beside(int directory, std::string_view name, mode_t mode) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::string made = '.' + std::string(name) + '.' + random_word() + ".part";
    OwnDescriptor file(
        ::openat(directory, made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode),
        directory, made.c_str());
    if (file.is_open()) return {std::move(file), std::move(made)};
    if (errno != EEXIST) break;
  }
  return {};
}

bool write_whole_file(int directory, const std::string& name, Parts parts, mode_t mode) {
  NewFile file = create_beside(directory, name, mode);
  if (!file.descriptor.is_open()) return false;
  const bool is_whole = write_all(file.descriptor.get(), parts);
  int error = errno;
  const bool is_closed = file.descriptor.close();
  if (is_whole && is_closed &&
      ::renameat(directory, file.name.c_str(), directory, name.c_str()) == 0)
    return true;
  if (is_whole) error = errno;
  ::unlinkat(directory, file.name.c_str(), 0);
  errno = error;
  return false;
}

bool write_all(int descriptor, Parts parts) noexcept {
  for (std::string_view bytes : parts) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        if (count == 0) errno = ENOSPC;
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  return true;
}

std::vector<std::string> names_in(int directory, std::size_t most) {
  std::vector<std::string> names;
  // A descriptor of its own, since a copy would share the place in the list with the caller's.
  const int listed = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listed < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(listed), ::closedir);
  if (entries == nullptr) {
    ::close(listed);
    return names;
  }
  while (names.size() < most) {
    const dirent* entry = ::readdir(entries.get());  // NOLINT(concurrency-mt-unsafe): of this call
    if (entry == nullptr) break;
    std::string name = static_cast<const char*>(entry->d_name);
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  return names;
}

std::string random_word() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz234567";
  std::array<unsigned char, 12> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), GRND_NONBLOCK) != std::ssize(bytes)) {
    // Early in a machine's life there may be none; O_EXCL is what keeps others out, and the name need only be new.
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    auto state = static_cast<std::uint64_t>(now.tv_nsec) ^
                 static_cast<std::uint64_t>(now.tv_sec) << 30U ^
                 static_cast<std::uint64_t>(::getpid()) << 40U;
    for (unsigned char& byte : bytes) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<unsigned char>(state >> 56U);
    }
  }
  std::string word;
  for (const unsigned char byte : bytes) word += kLetters[byte % kLetters.size()];
  return word;
}

}  // namespace gradvane::exporters
