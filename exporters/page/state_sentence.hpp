#pragma once
// The run's state in the words of the page's script (dashboards/page/src/words/state_sentence.ts).
#include <string>
#include <string_view>

#include "exporters/board/status_board.hpp"

namespace gradvane::exporters {

struct StateSentence {
  std::string_view tone;  ///< a class of the style sheet: good, warn, bad or calm
  std::string text;       ///< with names as the run has them: not escaped
};

/// @param latest  the newest numbers of the optimizer that leads the run; null before its first step
[[nodiscard]] StateSentence state_sentence(const Status& status, const LatestNumbers* latest);

}  // namespace gradvane::exporters
