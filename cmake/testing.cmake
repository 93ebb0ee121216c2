# The ways to add a test. Labels: unit, integration, gpu, soak.

find_package(GTest REQUIRED)

# torch is not instrumented, so its own leaks and races are kept out by suppressions; new code gets none.
# Tests run side by side: OpenMP's threads would wait for each other at barriers. promtool and Prometheus, which are in
# Go, collect garbage seldom: a fifth of promtool's time.
set(GRADVANE_TEST_ENVIRONMENT
  GTEST_COLOR=no
  OMP_NUM_THREADS=1
  GOGC=400
  GRADVANE_SOURCE_DIR=${PROJECT_SOURCE_DIR}
  GRADVANE_BUILD_DIR=${PROJECT_BINARY_DIR}
  GRADVANE_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  GRADVANE_SERVERS_DIR=${GRADVANE_SERVERS_DIR}
  GRADVANE_VENV_PYTHON=${GRADVANE_VENV_PYTHON}
  GRADVANE_SANITIZE=${GRADVANE_SANITIZE}
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1:protect_shadow_gap=0
  LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/scripts/sanitizers/lsan.supp:print_suppressions=0
  UBSAN_OPTIONS=print_stacktrace=1
  TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/scripts/sanitizers/tsan.supp:halt_on_error=1:second_deadlock_stack=1)

# Sanitizers make code some ten times slower; limits are for a machine that is busy besides.
function(gradvane_test_properties name timeout labels environment serial)
  if(NOT timeout)
    set(timeout 300)
    if("integration" IN_LIST labels)
      set(timeout 900)
    endif()
  endif()
  if(GRADVANE_SANITIZE)
    math(EXPR timeout "4 * ${timeout}")
  endif()
  if(NOT labels)
    set(labels unit)
  endif()
  # There is one device, and memory and waits on it are everybody's.
  if("gpu" IN_LIST labels)
    set(serial TRUE)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} RUN_SERIAL ${serial}
    ENVIRONMENT "${GRADVANE_TEST_ENVIRONMENT};${environment}")
endfunction()

# gradvane_shared_headers(<target> LINK ... HEADERS ...)
# Headers that many tests include, precompiled. They need a program of their own: a precompiled header serves only
# what is compiled with the same flags. Not with sanitizers, where they are not worth the disk.
function(gradvane_shared_headers target)
  if(GRADVANE_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;HEADERS")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp.new "int main() { return 0; }\n")
  file(COPY_FILE ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp.new ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp ONLY_IF_DIFFERENT)
  gradvane_executable(${target} SOURCES ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp LINK ${arg_LINK})
  gradvane_test_flags(${target})
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
endfunction()

# The tests' own code compiles in half the time without optimization. What they test is optimized.
function(gradvane_test_flags target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O0>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # asked for by the compiler cache
  if(NOT GRADVANE_CUDA_ARCHITECTURES)  # one for all: a newer device compiles it when the test starts
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES 80)
  endif()
endfunction()

# gradvane_take_headers(<target> <headers>): the flags of test code, and what gradvane_shared_headers(<headers>) has precompiled.
# GoogleTest is linked for its flags, which must be those of the headers.
function(gradvane_take_headers target headers)
  gradvane_test_flags(${target})
  if(NOT TARGET ${headers})
    return()
  endif()
  target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest)
  target_precompile_headers(${target} REUSE_FROM ${headers})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL EXECUTABLE)  # what is compiled for a library would not take headers that are compiled for a program
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIE)
  endif()
endfunction()

# gradvane_test(<name> SOURCES ... [LINK ...] [LABELS unit] [TIMEOUT 300] [ENVIRONMENT K=V ...]
#               [ARGS ...] [HEADERS target] [SERIAL] [OPTIMIZED])
# One program of GoogleTest cases, one ctest entry. SERIAL: it runs alone (timing, fixed ports), as every test
# labelled gpu does. HEADERS: whose precompiled headers it takes (gradvane_shared_headers);
# gradvane_gtest_headers unless said. OPTIMIZED: as the library is, for tests that compute much themselves.
function(gradvane_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;OPTIMIZED" "TIMEOUT;HEADERS" "SOURCES;LINK;LABELS;ENVIRONMENT;ARGS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gradvane_test(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  gradvane_executable(${name} SOURCES ${arg_SOURCES} LINK ${arg_LINK})
  gradvane_compile_together(${name})
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest GTest::gtest_main)
  if(NOT arg_OPTIMIZED)
    if(NOT arg_HEADERS)
      set(arg_HEADERS gradvane_gtest_headers)
      if(TARGET gradvane_gtest_headers)  # they declare its templates
        target_link_libraries(${name} PRIVATE gradvane_json_instances)
      endif()
    endif()
    gradvane_take_headers(${name} ${arg_HEADERS})
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  gradvane_test_properties(${name} "${arg_TIMEOUT}" "${arg_LABELS}" "${arg_ENVIRONMENT}" ${arg_SERIAL})
endfunction()

# gradvane_python_test(<name> SCRIPT x_test.py [y_test.py ...] [LABELS unit] [TIMEOUT 300] [ENVIRONMENT K=V ...]
#                      [ARGS ...] [SERIAL] [COST seconds])
# pytest on these files, in one process. Besides ENVIRONMENT it finds GRADVANE_{SOURCE,BUILD,BIN,SERVERS}_DIR. COST: about how long it
# takes, where that is more than a minute. The longest tests start first, so that no core idles at the end.
function(gradvane_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT;COST" "SCRIPT;LABELS;ENVIRONMENT;ARGS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gradvane_python_test(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  list(TRANSFORM arg_SCRIPT PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_test(NAME ${name} COMMAND ${GRADVANE_VENV_PYTHON} -B -m pytest -q -rs -p no:cacheprovider
    ${arg_SCRIPT} ${arg_ARGS})
  gradvane_test_properties(${name} "${arg_TIMEOUT}" "${arg_LABELS}" "${arg_ENVIRONMENT}" ${arg_SERIAL})
  if(arg_COST)
    set_tests_properties(${name} PROPERTIES COST ${arg_COST})
  endif()
endfunction()

add_library(gradvane_json_instances STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/json_instances.cpp)
gradvane_rules(gradvane_json_instances)
gradvane_test_flags(gradvane_json_instances)
gradvane_shared_headers(gradvane_gtest_headers LINK GTest::gmock GTest::gtest gradvane_json_instances
  HEADERS <algorithm> <array> <chrono> <filesystem> <fstream> <memory> <string> <thread> <vector>
    <gmock/gmock.h> <gtest/gtest.h> ${PROJECT_SOURCE_DIR}/tests/json_instances.hpp)
if(TARGET gradvane::torch)
  gradvane_shared_headers(gradvane_torch_test_headers LINK GTest::gmock GTest::gtest gradvane::torch
    HEADERS <ATen/core/Tensor.h> <ATen/ops/randn.h> <torch/nn/modules/container/sequential.h>
      <torch/nn/modules/linear.h> <torch/nn/utils/clip_grad.h> <torch/optim/adamw.h> <torch/optim/sgd.h>
      <gmock/gmock.h> <gtest/gtest.h>)
endif()
