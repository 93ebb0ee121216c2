#include "detectors/number_words.hpp"

#include <array>
#include <charconv>

namespace gradvane::detectors {

std::string words_of(double value) {
  std::array<char, 32> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 4);
  return {text.data(), end};
}

std::string percent(double share) { return words_of(100 * share) + " %"; }

}  // namespace gradvane::detectors
