#pragma once
// Numbers as they stand in a sentence of evidence.
#include <string>

namespace gradvane::detectors {

/// Four significant digits: "0.002314", "1.2e+09", "inf".
[[nodiscard]] std::string words_of(double value);

/// "12 %", "0.4 %".
[[nodiscard]] std::string percent(double share);

}  // namespace gradvane::detectors
