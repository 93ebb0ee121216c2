#pragma once
// The pages for people: plain HTML that needs no JavaScript.
#include "exporters/board/status_board.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// `/`: the run in words and numbers, for everybody. Where scripts run, /page.js puts another in its place;
/// where they do not, it reloads itself while the run lasts.
[[nodiscard]] HttpResponse overview_page(const StatusBoard& board);

}  // namespace gradvane::exporters
