#pragma once
// What moved first: which number of which group or parameter left its own history, and when.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exporters/replay/recording.hpp"

namespace gradvane::exporters::recording {

/// Numbers of many steps in three.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
  std::int64_t count = 0;
};

/// Of the finite ones; empty where there is none.
[[nodiscard]] std::optional<Spread> spread_of(std::vector<double> values);

struct Moved {
  std::string what;   ///< "gradient norm", "largest gradient", "loss", "loss scale", ...
  std::string group;  ///< empty where it is of the whole model or of a parameter
  std::string param;
  std::int64_t run_step = 0;  ///< since then it has been away from what was usual
  double value = 0;           ///< in that step
  double usual = 0;           ///< median of its history
  double score = 0;  ///< how far away in that step: robust standard deviations of the logarithm
};

/// Where a series goes away from its history for good: the first index of the deviation that lasts to its last
/// value but one. `values` are those up to the fault, positive, or NaN where there was none; the first
/// `history` of them are the history. Each is compared with the median of the logarithms of the history, in units of their median deviation.
struct Onset {
  std::size_t index = 0;
  double usual = 0;
  double score = 0;
};
[[nodiscard]] std::optional<Onset> onset_of(std::span<const double> values, std::size_t history);

/// All that moved before the step at `fault`, or in it: what moved first comes first, at most `most`.
[[nodiscard]] std::vector<Moved> moved_before(const Recording& recording, std::size_t fault,
                                              std::size_t most);

}  // namespace gradvane::exporters::recording
