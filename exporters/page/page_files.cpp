#include "exporters/page/page_files.hpp"

#include <string>

#include "exporters/page/page_data.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::string_view kIcon =
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><path d='M1 14 6 5l3 4 6-8' "
    "fill='none' stroke='#2563b8' stroke-width='2.4'/></svg>\n";

HttpResponse file(const PageData& data, std::string_view type) {
  return {.content_type = std::string(type),
          .packed = data.packed,
          .etag = '"' + std::string(data.hash.substr(0, 32)) + '"',
          .cache_control = "no-cache"};  // asked for each time, and answered with 304
}

}  // namespace

bool has_script() noexcept { return !kPageScript.packed.empty(); }

HttpResponse page_script() { return file(kPageScript, "text/javascript; charset=utf-8"); }

HttpResponse style_sheet() { return file(kPageStyle, "text/css; charset=utf-8"); }

HttpResponse page_icon() {
  return {.content_type = "image/svg+xml",
          .body = std::string(kIcon),
          .cache_control = "max-age=86400"};
}

}  // namespace gradvane::exporters
