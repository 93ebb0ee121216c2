#pragma once
// The files that the page at `/` loads, built from dashboards/page/ and held in the library.
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// False in a library that was built without Node: the page then has no script and shows less.
[[nodiscard]] bool has_script() noexcept;

/// `/page.js`
[[nodiscard]] HttpResponse page_script();
/// `/style.css`
[[nodiscard]] HttpResponse style_sheet();
/// `/icon.svg`
[[nodiscard]] HttpResponse page_icon();

}  // namespace gradvane::exporters
