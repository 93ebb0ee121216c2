# Packs the runbooks, and writes them as arrays that exporters/page/runbooks.cpp serves.
#   cmake -DFOLDER=docs/runbooks -DOUT=FILE.cpp -P embed_runbooks.cmake
file(GLOB runbooks ${FOLDER}/*.md)
list(SORT runbooks)
set(arrays "")
set(rows "")
set(number 0)
foreach(runbook ${runbooks})
  set(packed ${OUT}.gz)
  file(ARCHIVE_CREATE OUTPUT ${packed} PATHS ${runbook} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9 MTIME 0)
  file(READ ${packed} hex HEX)
  file(REMOVE ${packed})
  file(SHA256 ${runbook} hash)
  get_filename_component(name ${runbook} NAME_WE)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char kRunbook${number}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", runbook_bytes(kRunbook${number}), \"${hash}\"},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "// Made by cmake/embed_runbooks.cmake.
#include <array>
#include <cstddef>

#include \"exporters/page/runbook_data.hpp\"

namespace gradvane::exporters {
namespace {

${arrays}
template <std::size_t N>
std::string_view runbook_bytes(const unsigned char (&array)[N]) {
  return {reinterpret_cast<const char*>(array), N};
}

}  // namespace

std::span<const RunbookData> runbook_data() noexcept {
  static const std::array<RunbookData, ${number}> rows{{
${rows}  }};
  return rows;
}

}  // namespace gradvane::exporters
")
