#pragma once
// Text to train on: files in, token numbers out, the end of every file held out.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace char_gpt {

/// Debian's base-files puts these on every machine: 240 kB of real English prose.
inline constexpr const char* kDefaultData = "/usr/share/common-licenses";

/// A token is one byte of the text, numbered among the bytes that occur; so any file can be read, and
/// whatever the model writes can be printed.
struct Text {
  std::string vocabulary;  ///< the bytes that occur, ascending; a token is an index into it
  std::vector<std::uint8_t> training;
  std::vector<std::uint8_t> held_out;
  std::int64_t files = 0;
};

/// Reads a file, or every regular file below a folder in the order of their paths. Symbolic links in a
/// folder are skipped: there, they are second names of files that are read anyway. The last tenth of
/// each file is held out, so that both parts have a share of every file, and so that the endings which
/// versions of one licence have in common are not learnt from one version and tested in another.
/// Throws std::invalid_argument where there is nothing to read, std::runtime_error where reading fails.
[[nodiscard]] Text read_text(const std::filesystem::path& data);

/// The same from texts in memory, one a file.
[[nodiscard]] Text make_text(const std::vector<std::string>& files);

}  // namespace char_gpt
