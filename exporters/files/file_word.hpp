#pragma once
// A name from outside as part of a file's name.
#include <string>
#include <string_view>

namespace gradvane::exporters {

/// Only letters, digits, '-', '_' and '.', none of it hidden, and no more than a name can have; what else there
/// is becomes '_'.
[[nodiscard]] std::string file_word(std::string_view text);

}  // namespace gradvane::exporters
