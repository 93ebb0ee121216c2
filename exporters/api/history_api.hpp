#pragma once
// The routes that give numbers over time, in columns: what is drawn. Each answer has a schema in docs/api/.
#include <cstdint>
#include <string>
#include <string_view>

#include "exporters/board/status_board.hpp"
#include "exporters/history/run_history.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// ?resolution=run: the whole run in at most SeriesHistory::kPoints points; steps: what is kept of single
/// steps. ?since= &limit= &optimizer=
[[nodiscard]] HttpResponse history_json(const StatusBoard& board, const RunHistory& history,
                                        std::string_view query);

/// Groups or parameters by steps. ?rows= &value= &group= &search= &since= &limit=
[[nodiscard]] HttpResponse heatmap_json(const StatusBoard& board, const RunHistory& history,
                                        std::string_view query);

/// One parameter, with its history. ?name=
[[nodiscard]] HttpResponse param_history_json(const StatusBoard& board, const RunHistory& history,
                                              std::string_view query);

/// The steps that were taken after `since`: the text of one answer of history_json(), and the next cursor.
struct StepsText {
  std::string text = {};  ///< empty where there were none
  std::uint64_t next = 0;
};
[[nodiscard]] StepsText steps_text(const StatusBoard& board, std::int32_t optimizer,
                                   std::uint64_t since, std::size_t limit);

}  // namespace gradvane::exporters
