# Compiler cache, linker, sanitizers: what holds for every target, torch's own headers included.

find_program(GRADVANE_CCACHE ccache)
mark_as_advanced(GRADVANE_CCACHE)
if(GRADVANE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Files of the build folder go by their place in it: another build folder finds the same in the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_BINARY_DIR} ${GRADVANE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# mold links a torch program in a fraction of the time that the default linker takes.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=mold GRADVANE_LINKER_IS_MOLD)
if(GRADVANE_LINKER_IS_MOLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold> $<$<LINK_LANGUAGE:CUDA>:-Xcompiler=-fuse-ld=mold>)
endif()

if(GRADVANE_SANITIZE)
  set(flags -fsanitize=${GRADVANE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  add_link_options(-fsanitize=${GRADVANE_SANITIZE})
  # nvcc splits its arguments at commas, so `address,undefined` would reach the host compiler in two.
  string(REPLACE "," " -Xcompiler=-fsanitize=" flags "-Xcompiler=-fsanitize=${GRADVANE_SANITIZE}")
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:${flags}>")
endif()
