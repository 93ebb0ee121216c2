#include "exporters/files/private_directory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

OpenedDirectory refused(const fs::path& path, const std::string& why) {
  return {{}, path.string() + ' ' + why, 0};
}

OpenedDirectory failed(const fs::path& path) {
  const int code = errno;
  if (code == ELOOP || code == ENOTDIR) return refused(path, "is not a directory");
  return {{}, path.string() + ": " + std::strerror(code), code};
}

/// Takes the next directory on the way, `whole` by its full name, and looks at what was opened.
OpenedDirectory step_into(int parent, const std::string& name, const fs::path& whole, uid_t owner,
                          Missing missing) {
  int why_not_made = 0;
  if (missing == Missing::is_made && ::mkdirat(parent, name.c_str(), 0700) != 0)
    why_not_made = errno;
  OwnDescriptor opened(::openat(parent, name.c_str(), kDirectory | O_NOFOLLOW));
  if (!opened.is_open()) {
    if (errno == ENOENT && why_not_made != 0) errno = why_not_made;
    return failed(whole);
  }
  struct stat status{};
  if (::fstat(opened.get(), &status) != 0) return failed(whole);
  if (status.st_uid != owner) return refused(whole, "belongs to another user");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return refused(whole, "can be written to by other users");
  return {std::move(opened), {}, 0};
}

OpenedDirectory walk(OpenedDirectory at, fs::path so_far, const std::vector<fs::path>& parts,
                     uid_t owner, Missing missing) {
  for (const fs::path& part : parts) {
    if (!at.descriptor.is_open()) return at;
    so_far /= part;
    at = step_into(at.descriptor.get(), part.string(), so_far, owner, missing);
  }
  return at;
}

OpenedDirectory open_trusted(const fs::path& path) {
  OwnDescriptor opened(::open(path.c_str(), kDirectory));
  if (!opened.is_open()) return failed(path);
  return {std::move(opened), {}, 0};
}

}  // namespace

OpenedDirectory open_private_directory(const fs::path& base, const fs::path& below, uid_t owner,
                                       Missing missing) {
  return walk(open_trusted(base), base, {below.begin(), below.end()}, owner, missing);
}

OpenedDirectory open_named_directory(const fs::path& path, uid_t owner, Missing missing) {
  std::error_code ignored;
  fs::path there = fs::absolute(path, ignored).lexically_normal();
  if (!there.has_filename()) there = there.parent_path();  // a slash at its end
  std::vector<fs::path> parts;
  OpenedDirectory opened = open_trusted(there);
  while (!opened.descriptor.is_open() && opened.code == ENOENT && missing == Missing::is_made &&
         there.has_relative_path()) {
    parts.insert(parts.begin(), there.filename());
    there = there.parent_path();
    opened = open_trusted(there);
  }
  if (!opened.descriptor.is_open() || !parts.empty())
    return walk(std::move(opened), there, parts, owner, missing);
  struct stat status{};
  if (::fstat(opened.descriptor.get(), &status) != 0) return failed(path);
  if (status.st_uid != owner && status.st_uid != 0) return refused(path, "belongs to another user");
  if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0)
    return refused(path, "can be written to by everyone");
  return opened;
}

bool is_in_memory(int directory) noexcept {
  struct statfs status{};
  if (::fstatfs(directory, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

}  // namespace gradvane::exporters
