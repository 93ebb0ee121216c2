#pragma once
// The page that is there without its script: HTML alone.
#include "exporters/board/status_board.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// `/`: the state, six numbers and the incidents. /page.js replaces it with the whole page. If scripts are
/// off, it reloads itself while the run lasts. Any thread.
[[nodiscard]] HttpResponse overview_page(const StatusBoard& board);

}  // namespace gradvane::exporters
