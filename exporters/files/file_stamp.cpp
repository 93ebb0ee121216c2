#include "exporters/files/file_stamp.hpp"

#include <sys/stat.h>

namespace gradvane::exporters {

FileStamp stamp_of(const std::string& file) noexcept {
  struct stat found{};
  if (::stat(file.c_str(), &found) != 0) return {};
  return {.is_there = true,
          .device = found.st_dev,
          .inode = found.st_ino,
          .size = S_ISREG(found.st_mode) ? found.st_size : -1,
          .modified = std::int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec};
}

}  // namespace gradvane::exporters
