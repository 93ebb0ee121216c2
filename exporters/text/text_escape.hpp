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
/// For a line on a terminal: control characters (of C0 and C1), characters that only say how others are
/// shown (category Cf, with the marks that turn the direction of writing) and line separators become `?`.
[[nodiscard]] std::string plain(std::string_view text);
/// At most a kibibyte of it, in whole characters, with an ellipsis where something was left out. For texts
/// of exceptions, which may be of any length.
[[nodiscard]] std::string brief(std::string_view text);

}  // namespace gradvane::exporters
