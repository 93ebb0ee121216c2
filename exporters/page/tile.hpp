#pragma once
// One number of the page, in a box with its name.
#include <string>
#include <string_view>

namespace gradvane::exporters {

/// Appends a tile for a list of class `tiles`. `value` and `note` are HTML already; `look` is `bad`,
/// `wide` or both.
void append_tile(std::string& html, std::string_view name, const std::string& value,
                 const std::string& note = {}, std::string_view look = {});

}  // namespace gradvane::exporters
