#include "exporters/page/page_number.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>

#include "exporters/text/human_text.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::string_view kUnmeasured = "\xE2\x80\x93";  // en dash
constexpr std::string_view kMinus = "\xE2\x88\x92";
constexpr std::size_t kDigits = 4;

/// d.ddd times ten to the power.
struct Decimal {
  std::string digits;
  int power = 0;
};

/// Rounds a tie away from zero, as JavaScript does: printf and to_chars round it to even. Sixty digits are
/// more than a double needs to be told from a tie of five.
Decimal rounded(double size) {
  std::array<char, 80> text{};
  const char* const end =
      std::to_chars(text.data(), text.data() + text.size(), size, std::chars_format::scientific, 59)
          .ptr;
  const std::string_view all(text.data(), static_cast<std::size_t>(end - text.data()));
  Decimal decimal{.digits = std::string(1, all[0]) + std::string(all.substr(2, kDigits - 1)),
                  .power = std::atoi(std::string(all.substr(all.find('e') + 1)).c_str())};
  if (all[kDigits + 1] < '5') return decimal;
  std::size_t at = kDigits;
  while (at > 0 && decimal.digits[at - 1] == '9') decimal.digits[--at] = '0';
  if (at > 0) {
    ++decimal.digits[at - 1];
  } else {
    decimal.digits.insert(0, 1, '1').pop_back();
    ++decimal.power;
  }
  return decimal;
}

/// Without the zeros at the end of a fraction.
std::string trimmed(std::string digits) {
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.ends_with('.')) digits.pop_back();
  return digits;
}

std::string with_exponent(const Decimal& decimal) {
  std::string text = trimmed(decimal.digits.substr(0, 1) + '.' + decimal.digits.substr(1));
  text.append("e").append(decimal.power < 0 ? kMinus : "");
  return text.append(std::to_string(std::abs(decimal.power)));
}

std::string without_exponent(const Decimal& decimal) {
  if (decimal.power < 0) {
    const auto zeros = static_cast<std::size_t>(-decimal.power - 1);
    return trimmed("0." + std::string(zeros, '0') + decimal.digits);
  }
  const auto whole = static_cast<std::size_t>(decimal.power) + 1;
  return trimmed(decimal.digits.substr(0, whole) + '.' + decimal.digits.substr(whole));
}

}  // namespace

std::string page_number(const std::optional<double>& value) {
  if (!value) return std::string(kUnmeasured);
  if (std::isnan(*value)) return "NaN";
  std::string text(*value < 0 ? kMinus : "");
  if (std::isinf(*value)) return text.empty() ? "+Inf" : text + "Inf";
  if (*value == 0) return "0";
  const Decimal decimal = rounded(std::abs(*value));
  if (decimal.power < -4 || decimal.power >= 6) return text + with_exponent(decimal);
  if (decimal.power < 3) return text + without_exponent(decimal);
  // A thousand and more is rounded to a whole number, a half up.
  return text + human_count(std::abs(static_cast<std::int64_t>(std::floor(*value + 0.5))));
}

std::string page_plural(std::int64_t count, std::string_view one) {
  std::string text = human_count(count) + ' ';
  text += one;
  if (count != 1) text += 's';
  return text;
}

std::string page_age(std::int64_t seconds) {
  constexpr std::int64_t kHour = 3600;
  if (seconds < 48 * kHour) return human_duration(static_cast<double>(seconds));
  return std::to_string(seconds / (24 * kHour)) + " d " + std::to_string(seconds / kHour % 24) +
         " h";
}

}  // namespace gradvane::exporters
