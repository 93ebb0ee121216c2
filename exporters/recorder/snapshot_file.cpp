#include "exporters/recorder/snapshot_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "exporters/files/file_signals.hpp"
#include "exporters/files/file_word.hpp"

namespace gradvane::exporters::recording {

namespace {

constexpr std::string_view kSuffix = ".gvrec";
constexpr std::string_view kPart = ".part";
constexpr std::size_t kMostEntries = 65'536;

bool exists(int directory, const std::string& name) {
  struct stat status{};
  return ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

/// When it was written to last; of no use for the order of this process's own files, since clocks are set.
std::pair<std::int64_t, std::int64_t> time_of(int directory, const std::string& name) {
  struct stat status{};
  if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return {};
  return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

SnapshotFiles::SnapshotFiles(std::shared_ptr<RunDirectory> directory, std::string_view run,
                             int rank, int kept)
    : directory_(std::move(directory)),
      prefix_(file_word(run) + ".rank" + std::to_string(rank) + '.'),
      kept_(static_cast<std::size_t>(std::max(kept, 1))) {}

std::string SnapshotFiles::write(std::int64_t run_step, std::string_view word, Parts parts) noexcept
    try {
  const FileSignalsBlocked signals;
  const int directory = directory_->use();
  if (directory < 0) return {};
  std::string name = free_name(directory, run_step, word);
  if (!write_whole_file(directory, name, parts, 0600)) return {};
  written_.push_back(name);
  remove_oldest(directory);
  return name;
} catch (...) {
  errno = ENOMEM;
  return {};
}

bool SnapshotFiles::append(const std::string& name, Parts parts) noexcept {
  const FileSignalsBlocked signals;
  const int directory = directory_->use();
  if (directory < 0) return false;
  const OwnDescriptor file =
      open_regular(directory, name, O_WRONLY | O_APPEND, directory_->owner());
  if (!file.is_open()) return false;
  struct stat before{};
  const bool is_known = ::fstat(file.get(), &before) == 0;
  const bool is_whole = write_all(file.get(), parts);
  const int error = errno;
  // A torn frame would be stepped over; without it the file is shorter.
  const bool is_cut = is_whole || (is_known && ::ftruncate(file.get(), before.st_size) == 0);
  errno = error;
  return is_whole && is_cut;
}

/// A run that fails again at the same step, after it was started anew, is not to take the first one's place.
std::string SnapshotFiles::free_name(int directory, std::int64_t run_step,
                                     std::string_view word) const {
  const std::string stem = prefix_ + "step" + std::to_string(run_step) + '.' + file_word(word);
  for (int i = 1;; ++i) {
    std::string name = stem + (i == 1 ? "" : '-' + std::to_string(i));
    name += kSuffix;
    if (i > 1000 || !exists(directory, name)) return name;
  }
}

void SnapshotFiles::remove_oldest(int directory) noexcept try {
  std::erase_if(written_, [&](const std::string& name) { return !exists(directory, name); });
  std::vector<std::string> earlier;
  for (const std::string& name : names_in(directory, kMostEntries)) {
    if (name.starts_with('.' + prefix_ + "step") && name.ends_with(kPart))
      ::unlinkat(directory, name.c_str(), 0);  // of a process that was killed over it
    if (!name.starts_with(prefix_ + "step") || !name.ends_with(kSuffix)) continue;
    if (std::ranges::find(written_, name) == written_.end()) earlier.push_back(name);
  }
  std::ranges::sort(earlier, {}, [&](const std::string& name) {
    return std::pair(time_of(directory, name), name);
  });
  std::size_t there = earlier.size() + written_.size();
  const auto remove = [&](const std::string& name) {
    return ::unlinkat(directory, name.c_str(), 0) == 0 && there-- > 0;
  };
  for (const std::string& name : earlier)
    if (there > kept_) (void)remove(name);
  // Of its own the second goes first: the first says how it began, and the newest is what was asked for.
  while (there > kept_ && written_.size() > 2 && remove(written_[1]))
    written_.erase(written_.begin() + 1);
  if (there > kept_ && written_.size() == 2 && remove(written_[0]))
    written_.erase(written_.begin());
} catch (...) {  // a file too many is no harm
}

}  // namespace gradvane::exporters::recording
