#pragma once
// The pages for people: plain HTML that needs no JavaScript.
#include "exporters/http_message.hpp"
#include "exporters/status_board.hpp"

namespace gradvane::exporters {

/// `/`: the run in words and numbers. Reloads itself while the run lasts.
[[nodiscard]] HttpResponse overview_page(const StatusBoard& board);

/// `/style.css`
[[nodiscard]] HttpResponse style_sheet();

}  // namespace gradvane::exporters
