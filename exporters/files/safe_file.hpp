#pragma once
// Files in directories that other people may write to: never through a link, never a pipe, never a wait.
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/files/own_descriptor.hpp"

namespace gradvane::exporters {

/// What is written in one go without being put together first.
using Parts = std::span<const std::string_view>;

/// Opens the regular file `name` of the user `owner` in `directory`. A link, a pipe, a device or a file of
/// another user is refused (ELOOP, EINVAL, EPERM). `flags` are those of open(2). Never waits for a partner.
[[nodiscard]] OwnDescriptor open_regular(int directory, const std::string& name, int flags,
                                         uid_t owner) noexcept;

/// Everything in such a file. Empty where it cannot be opened, or has more than `limit` bytes
/// (EFBIG); errno says why.
[[nodiscard]] std::optional<std::string> read_regular(int directory, const std::string& name,
                                                      std::size_t limit, uid_t owner);

/// A file that no other program has open, with a random name: `.NAME.xxxxxxxxxxxx.part`.
struct NewFile {
  OwnDescriptor descriptor;  ///< not open where it could not be made; errno says why
  std::string name;
};
/// @param mode  before the umask
[[nodiscard]] NewFile create_beside(int directory, std::string_view name, mode_t mode);

/// Writes `parts` to a new file and gives it the name: a reader sees the old file or the new one, whole.
/// A link or pipe that has the name is replaced, not followed. False: errno says why, and nothing is left.
[[nodiscard]] bool write_whole_file(int directory, const std::string& name, Parts parts,
                                    mode_t mode);

/// All of `parts`, or false; errno says why.
[[nodiscard]] bool write_all(int descriptor, Parts parts) noexcept;

/// Names of the entries of `directory`, at most `most`, without . and .. and in no order.
[[nodiscard]] std::vector<std::string> names_in(int directory, std::size_t most);

/// Twelve letters and digits that another program cannot guess.
[[nodiscard]] std::string random_word();

}  // namespace gradvane::exporters
