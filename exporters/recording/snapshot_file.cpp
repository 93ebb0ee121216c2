#include "exporters/recording/snapshot_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "exporters/file_word.hpp"
#include "exporters/recording/file_signals.hpp"

namespace gradvane::exporters::recording {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSuffix = ".gvrec";
constexpr std::string_view kPart = ".gvrec.part";

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

}  // namespace

bool make_directories(const fs::path& directory) noexcept try {
  fs::path so_far;
  for (const fs::path& part : directory) {
    so_far /= part;
    ::mkdir(so_far.c_str(), 0700);  // what is there stays as it is
  }
  std::error_code wrong;
  return fs::is_directory(directory, wrong);
} catch (...) {
  return false;
}

SnapshotFiles::SnapshotFiles(fs::path directory, std::string_view run, int rank, int kept)
    : directory_(std::move(directory)),
      prefix_(file_word(run) + ".rank" + std::to_string(rank) + '.'),
      kept_(static_cast<std::size_t>(std::max(kept, 1))) {}

fs::path SnapshotFiles::write(std::int64_t run_step, std::string_view word, Parts parts) noexcept
    try {
  const FileSignalsBlocked signals;
  (void)make_directories(directory_);
  fs::path path = free_name(run_step, word);
  const std::string temporary = path.string() + ".part";
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) return {};
  const bool is_whole = write_all(descriptor, parts);
  int error = errno;
  if (::close(descriptor) == 0 && is_whole && ::rename(temporary.c_str(), path.c_str()) == 0) {
    if (first_.empty()) first_ = path;
    remove_oldest(path);
    return path;
  }
  if (is_whole) error = errno;
  ::unlink(temporary.c_str());
  errno = error;
  return {};
} catch (...) {
  errno = ENOMEM;
  return {};
}

bool SnapshotFiles::append(const fs::path& path, Parts parts) noexcept {
  const FileSignalsBlocked signals;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  struct stat before{};
  const bool is_known = ::fstat(descriptor, &before) == 0;
  const bool is_whole = write_all(descriptor, parts);
  const int error = errno;
  // A torn frame would be stepped over; without it the file is shorter.
  const bool is_cut = is_whole || (is_known && ::ftruncate(descriptor, before.st_size) == 0);
  ::close(descriptor);
  errno = error;
  return is_whole && is_cut;
}

/// A run that fails again at the same step, after it was started anew, is not to take the first one's place.
fs::path SnapshotFiles::free_name(std::int64_t run_step, std::string_view word) const {
  const std::string stem = prefix_ + "step" + std::to_string(run_step) + '.' + file_word(word);
  for (int i = 1;; ++i) {
    fs::path path = directory_ / (stem + (i == 1 ? "" : '-' + std::to_string(i)));
    path += kSuffix;
    std::error_code ignored;
    if (i > 1000 || !fs::exists(fs::symlink_status(path, ignored))) return path;
  }
}

void SnapshotFiles::remove_oldest(const fs::path& newest) noexcept try {
  std::vector<std::pair<fs::file_time_type, fs::path>> others;
  std::error_code wrong;
  for (const auto& entry : fs::directory_iterator(directory_, wrong)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix_ + "step")) continue;           // the ring's name has none
    if (name.ends_with(kPart)) fs::remove(entry.path(), wrong);  // of one who was killed over it
    if (!name.ends_with(kSuffix)) continue;
    if (entry.path() == newest || entry.path() == first_) continue;
    others.emplace_back(entry.last_write_time(wrong), entry.path());
  }
  const std::size_t protected_ones = newest == first_ ? 1 : 2;
  std::size_t there = others.size() + protected_ones;
  std::ranges::sort(others);
  for (const auto& [time, path] : others) {
    if (there <= kept_) return;
    if (fs::remove(path, wrong)) --there;
  }
  if (there > kept_ && newest != first_) {  // one may be kept, and the newest is what was asked for
    fs::remove(first_, wrong);
    first_ = newest;
  }
} catch (...) {  // a file too many is no harm
}

}  // namespace gradvane::exporters::recording
