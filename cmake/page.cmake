# The page's files, built from dashboards/page/ with Node and what `make deps` fetched for it, into
# ${PROJECT_BINARY_DIR}/page/page_data.cpp.

set(found OFF)
if(GRADVANE_NODE AND EXISTS "${GRADVANE_NODE}" AND EXISTS "${GRADVANE_PAGE_MODULES}/esbuild")
  set(found ON)
endif()
option(GRADVANE_PAGE "Build the page's script; without it the page shows less" ON)
if(GRADVANE_PAGE AND NOT found)
  message(FATAL_ERROR "The page needs Node and its packages: run make deps, or set GRADVANE_NODE and "
    "GRADVANE_PAGE_MODULES, or go without with -DGRADVANE_PAGE=OFF")
endif()

set(page_source ${PROJECT_SOURCE_DIR}/dashboards/page)
set(GRADVANE_PAGE_BUILD ${PROJECT_BINARY_DIR}/page)
if(GRADVANE_PAGE)
  file(GLOB_RECURSE page_sources CONFIGURE_DEPENDS ${page_source}/src/*.ts ${page_source}/src/*.tsx
    ${page_source}/src/*.css)
  add_custom_command(
    OUTPUT ${GRADVANE_PAGE_BUILD}/page.js ${GRADVANE_PAGE_BUILD}/style.css
    COMMAND ${GRADVANE_NODE} ${page_source}/build.mjs --modules ${GRADVANE_PAGE_MODULES} --out ${GRADVANE_PAGE_BUILD}
    DEPENDS ${page_sources} ${page_source}/build.mjs ${page_source}/package-lock.json
    COMMENT "Bundling the page")
  set(style ${GRADVANE_PAGE_BUILD}/style.css)
  set(script ${GRADVANE_PAGE_BUILD}/page.js)
else()
  set(style ${page_source}/src/styles/style_plain.css)
  set(script "")
endif()
add_custom_command(
  OUTPUT ${GRADVANE_PAGE_BUILD}/page_data.cpp
  COMMAND ${CMAKE_COMMAND} -DSTYLE=${style} "-DSCRIPT=${script}" -DOUT=${GRADVANE_PAGE_BUILD}/page_data.cpp
    -P ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
  DEPENDS ${style} ${script} ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
  COMMENT "Packing the page")
