#include "exporters/page/tile.hpp"

namespace gradvane::exporters {

void append_tile(std::string& html, std::string_view name, const std::string& value,
                 const std::string& note, std::string_view look) {
  html.append("<div class=\"tile ").append(look).append("\"><dt>").append(name);
  html.append("</dt><dd>").append(value).append("</dd>");
  if (!note.empty()) html.append("<dd class=\"note\">").append(note).append("</dd>");
  html += "</div>\n";
}

}  // namespace gradvane::exporters
