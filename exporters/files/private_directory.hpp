#pragma once
// Directories that nobody but the user may change, opened without following a link on the way.
#include <sys/types.h>

#include <filesystem>
#include <string>

#include "exporters/files/own_descriptor.hpp"

namespace gradvane::exporters {

struct OpenedDirectory {
  OwnDescriptor descriptor;
  std::string error;  ///< for a person; empty where `descriptor` is open
  int code = 0;       ///< the same as errno; 0 where it was opened, but is refused
};

enum class Missing : bool { stays, is_made };

/// Opens `base`/`below`. `base` may be anything that the user trusts, links included. Each directory of
/// `below` must belong to `owner`, be a real directory, and be writable by `owner` alone; a missing one is
/// made with mode 0700. So whoever may write to `base` can take the directories away, and nothing else.
[[nodiscard]] OpenedDirectory open_private_directory(const std::filesystem::path& base,
                                                     const std::filesystem::path& below,
                                                     uid_t owner, Missing missing);

/// Opens a directory that the user named: what exists of `path` is taken as it is, links included, and what
/// is missing is made with mode 0700. It is refused where it belongs to someone other than `owner` and root,
/// or where everyone may write to it and remove what others wrote.
[[nodiscard]] OpenedDirectory open_named_directory(const std::filesystem::path& path, uid_t owner,
                                                   Missing missing);

/// Whether files in the open directory take memory instead of room on a disk.
[[nodiscard]] bool is_in_memory(int directory) noexcept;

}  // namespace gradvane::exporters
