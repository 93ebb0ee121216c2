# The ways to make a target, so that every layer gets the same rules.

set(GRADVANE_WARNINGS -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Wextra-semi)
# GCC 12 sees overlapping copies in its own std::string (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND GRADVANE_WARNINGS -Wno-restrict)
endif()
# Instrumented code looks to GCC as if it read std::optional without a look (its manual says so of -fsanitize).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND GRADVANE_SANITIZE)
  list(APPEND GRADVANE_WARNINGS -Wno-maybe-uninitialized)
endif()

# The root that includes start at. Not by its plain name: ccache would take that for relative to the build folder, which
# lies in it, and another build folder (that of `pip install .`) would find nothing in the cache.
set(GRADVANE_INCLUDE_ROOT ${PROJECT_SOURCE_DIR}/.)

# Warnings, include root and visibility of one target.
function(gradvane_rules target)
  target_include_directories(${target} PRIVATE ${GRADVANE_INCLUDE_ROOT})
  # Checks keep the names of files: none of this machine's folders is shipped.
  set(map -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${map}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${map}>")
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${GRADVANE_WARNINGS}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
  if(GRADVANE_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
      "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# The sources of a folder are compiled together, so that what they include is read once: half the time of a build
# goes into that. So names that a file has for itself must differ from those of its neighbours.
function(gradvane_compile_together target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE folder)
    cmake_path(GET folder PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER ${folder} folder)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes a source that is included for a header, whose types should not be made of a source's own.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# gradvane_library(<layer> [SOURCES ...] [PUBLIC ...] [PRIVATE ...])
# A layer: static library gradvane_<layer>, known to others as gradvane::<layer>. PUBLIC and PRIVATE
# are what it links. Without sources it is header-only.
function(gradvane_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PUBLIC;PRIVATE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gradvane_library(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  if(arg_SOURCES)
    add_library(gradvane_${name} STATIC ${arg_SOURCES})
    gradvane_rules(gradvane_${name})
    gradvane_compile_together(gradvane_${name})
    target_include_directories(gradvane_${name} PUBLIC ${GRADVANE_INCLUDE_ROOT})
    target_link_libraries(gradvane_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  else()
    add_library(gradvane_${name} INTERFACE)
    target_include_directories(gradvane_${name} INTERFACE ${GRADVANE_INCLUDE_ROOT})
    target_link_libraries(gradvane_${name} INTERFACE ${arg_PUBLIC})
  endif()
  add_library(gradvane::${name} ALIAS gradvane_${name})
endfunction()

# gradvane_executable(<name> SOURCES ... [LINK ...])
# A program in build/<preset>/bin.
function(gradvane_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gradvane_executable(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  add_executable(${name} ${arg_SOURCES})
  gradvane_rules(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK})
endfunction()
