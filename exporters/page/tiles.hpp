#pragma once
// The numbers of now: the first six tiles of the page's script (dashboards/page/src/tabs/tiles.tsx).
#include <cstddef>
#include <string>
#include <vector>

#include "exporters/board/status_board.hpp"

namespace gradvane::exporters {

/// Steps that the rate is taken over.
inline constexpr std::size_t kRateSteps = 100;

/// Appends a list of class `tiles`.
/// @param row    the newest numbers of one optimizer; it has a latest step
/// @param steps  that optimizer's newest kRateSteps steps, oldest first
void append_tiles(std::string& html, const Status& status, const LatestNumbers& row,
                  const std::vector<record::StepRecord>& steps);

}  // namespace gradvane::exporters
