#include "exporters/page.hpp"

namespace gradvane::exporters {

HttpResponse overview_page(const StatusBoard&) {
  return {.content_type = "text/html; charset=utf-8",
          .body = "<!doctype html><title>Gradvane</title>"};
}

HttpResponse style_sheet() { return {.content_type = "text/css; charset=utf-8", .body = ""}; }

}  // namespace gradvane::exporters
