# Packs page.js and style.css, and writes them as arrays that exporters/page/page_files.cpp serves.
#   cmake -DSTYLE=FILE [-DSCRIPT=FILE] -DOUT=FILE.cpp -P embed_page.cmake
# Without a script there is none.
function(array_of name file)
  set(packed ${OUT}.${name}.gz)
  file(ARCHIVE_CREATE OUTPUT ${packed} PATHS ${file} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9 MTIME 0)
  file(READ ${packed} hex HEX)
  file(REMOVE ${packed})
  file(SHA256 ${file} hash)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  set(arrays "${arrays}constexpr unsigned char k${name}[] = {${bytes}};\n" PARENT_SCOPE)
  set(data "${data}const PageData kPage${name}{bytes(k${name}), \"${hash}\"};\n" PARENT_SCOPE)
endfunction()

set(arrays "")
set(data "")
array_of(Style ${STYLE})
if(SCRIPT)
  array_of(Script ${SCRIPT})
else()
  string(APPEND data "const PageData kPageScript{};\n")
endif()
file(WRITE ${OUT} "// Made by cmake/embed_page.cmake.
#include \"exporters/page/page_data.hpp\"

#include <cstddef>

namespace gradvane::exporters {
namespace {

${arrays}
template <std::size_t N>
std::string_view bytes(const unsigned char (&array)[N]) {
  return {reinterpret_cast<const char*>(array), N};
}

}  // namespace

${data}
}  // namespace gradvane::exporters
")
