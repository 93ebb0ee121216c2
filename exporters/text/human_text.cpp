#include "exporters/text/human_text.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "exporters/text/number_text.hpp"

namespace gradvane::exporters {
namespace {

constexpr const char* kUnmeasured = "\xE2\x80\x93";  // en dash

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), format, values...);
  return {text.data(),
          length > 0 ? std::min(static_cast<std::size_t>(length), text.size() - 1) : 0};
}

}  // namespace

std::string human_number(const std::optional<double>& value) {
  if (!value) return kUnmeasured;
  if (std::isfinite(*value)) return print("%.4g", *value);
  std::string text;
  append_number(text, *value);
  return text;
}

std::string human_count(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return kUnmeasured;
  if (seconds < 0.9995) return print("%.3g ms", seconds * 1000);
  if (seconds < 59.95) return print("%.3g s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return print("%lld min %lld s", whole / 60, whole % 60);
  return print("%lld h %lld min", whole / 3600, whole / 60 % 60);
}

std::string human_time(double seconds) {
  if (!std::isfinite(seconds) || std::abs(seconds) > 1e11) return kUnmeasured;
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 40> text{};
  const auto length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return {text.data(), length};
}

}  // namespace gradvane::exporters
