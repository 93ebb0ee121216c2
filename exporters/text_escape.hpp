#pragma once
// Escaping of text that came from outside, for the place it goes to.
#include <string>
#include <string_view>

namespace gradvane::exporters {

/// For a quoted label value, and for HELP in OpenMetrics: backslash, quote and line feed.
void append_quoted(std::string& out, std::string_view text);
/// For HELP in text 0.0.4: backslash and line feed only.
void append_help(std::string& out, std::string_view text);
/// For HTML, in text and in quoted attributes.
void append_html(std::string& out, std::string_view text);
[[nodiscard]] std::string html_of(std::string_view text);

}  // namespace gradvane::exporters
