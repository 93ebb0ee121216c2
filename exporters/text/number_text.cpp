#include "exporters/text/number_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace gradvane::exporters {
namespace {

constexpr double kWholeBelow = 1e15;  // every whole number below is exact and has at most 15 digits
constexpr int kLongest = 32;          // "-2.2250738585072014e-308" and some

bool append_special(std::string& out, double value) {
  if (std::isfinite(value)) return false;
  out += std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
  return true;
}

template <typename... Format>
std::string_view print(std::array<char, kLongest>& buffer, double value, Format... format) {
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format...);
  return {buffer.data(), result.ptr};
}

}  // namespace

void append_number(std::string& out, double value) {
  if (append_special(out, value)) return;
  std::array<char, kLongest> buffer;
  if (std::abs(value) < kWholeBelow && value == std::trunc(value)) {
    out += print(buffer, value, std::chars_format::fixed);
    return;
  }
  out += print(buffer, value);
}

void append_canonical_number(std::string& out, double value) {
  if (append_special(out, value)) return;
  std::array<char, kLongest> buffer;
  // Go's %g and Python's repr agree on where the exponent starts, below 1e-4; Go also switches at 1e21
  // and OpenMetrics' own rule at 1e6 for `le`, which is the one that strict readers check.
  const double magnitude = std::abs(value);
  const bool is_plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e6);
  const auto text =
      print(buffer, value, is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  const auto exponent = text.find('e');
  out += text.substr(0, exponent);
  if (text.substr(0, exponent).find('.') == std::string_view::npos && is_plain) out += ".0";
  if (exponent == std::string_view::npos) return;
  out += text.substr(exponent);
}

}  // namespace gradvane::exporters
