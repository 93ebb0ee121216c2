#pragma once
// What cmake/embed_page.cmake makes of the page's files. Private to page_files.cpp.
#include <string_view>

namespace gradvane::exporters {

struct PageData {
  std::string_view packed;  ///< gzip's bytes; empty: there is no such file
  std::string_view hash;    ///< SHA-256 of what is in them, in hex
};

extern const PageData kPageScript;
extern const PageData kPageStyle;

}  // namespace gradvane::exporters
