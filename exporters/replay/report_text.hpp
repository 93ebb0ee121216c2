#pragma once
// What the texts about recordings are put together from.
#include <string>
#include <string_view>

#include "exporters/text/text_escape.hpp"

namespace gradvane::exporters::recording {

using exporters::plain;  ///< names come from outside: no terminal is to obey them

/// An indented line.
void line(std::string& text, std::string_view words);

}  // namespace gradvane::exporters::recording
