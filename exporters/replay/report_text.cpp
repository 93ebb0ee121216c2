#include "exporters/replay/report_text.hpp"

namespace gradvane::exporters::recording {

void line(std::string& text, std::string_view words) { text.append("  ").append(words) += '\n'; }

}  // namespace gradvane::exporters::recording
