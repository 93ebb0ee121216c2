#pragma once
// The plain page's table of parameters.
#include <string>

#include "exporters/board/status_board.hpp"

namespace gradvane::exporters {

/// The worst ones, as HTML.
void append_params_section(std::string& html, const ParamTable& table);

}  // namespace gradvane::exporters
