#pragma once
// What the texts about recordings are put together from.
#include <string>
#include <string_view>

namespace gradvane::exporters::recording {

/// Names come from outside: no terminal is to obey them.
[[nodiscard]] std::string plain(std::string_view text);

/// An indented line.
void line(std::string& text, std::string_view words);

}  // namespace gradvane::exporters::recording
