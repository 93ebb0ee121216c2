# gradvane::torch: the one target through which torch's headers can be seen.
# A function, because find_package(Torch) edits CMAKE_CUDA_FLAGS and CMAKE_CUDA_ARCHITECTURES: it
# appends -gencode for architectures that nvcc 13 no longer knows. What it sets ends with the scope;
# the targets it makes stay.
function(gradvane_find_torch)
  set(TORCH_CUDA_ARCH_LIST 9.0)
  unset(CMAKE_CUDA_ARCHITECTURES)  # it warns about a value, then ignores it
  # For torch's FindCUDA, a copy of CMake's retired one, which looks at this name alone.
  set(CUDA_TOOLKIT_ROOT_DIR ${GRADVANE_CUDA_ROOT} CACHE PATH "CUDA toolkit, for torch's FindCUDA" FORCE)
  # Kineto is inside libtorch_cpu, yet the script looks for a library of that name and warns.
  set(kineto_LIBRARY ${GRADVANE_TORCH_DIR}/lib/libtorch_cpu.so)
  set(Python_EXECUTABLE ${GRADVANE_VENV_PYTHON})
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
  add_library(gradvane_torch INTERFACE)
  add_library(gradvane::torch ALIAS gradvane_torch)
  # Torch's checks keep the names of its headers.
  target_compile_options(gradvane_torch INTERFACE
    $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${GRADVANE_TORCH_DIR}=torch>>)
  if(GRADVANE_TORCH_BY_HAND)
    gradvane_torch_by_hand(gradvane_torch ${GRADVANE_TORCH_DIR})
  else()
    find_package(Torch REQUIRED CONFIG PATHS ${GRADVANE_TORCH_DIR}/share/cmake/Torch NO_DEFAULT_PATH)
    target_link_libraries(gradvane_torch INTERFACE ${TORCH_LIBRARIES})
  endif()

  # gradvane::torch_openmp, for code that calls at::parallel_for: a template, parallel only where it is
  # compiled with OpenMP. It must run on the very libgomp that torch brings, which its wheel does.
  add_library(gradvane_torch_openmp INTERFACE)
  add_library(gradvane::torch_openmp ALIAS gradvane_torch_openmp)
  target_link_libraries(gradvane_torch_openmp INTERFACE gradvane_torch)
  set(libgomp ${GRADVANE_TORCH_DIR}/lib/libgomp.so.1)
  if(EXISTS ${libgomp})
    target_compile_options(gradvane_torch_openmp INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
    target_link_libraries(gradvane_torch_openmp INTERFACE ${libgomp})
  else()
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_link_libraries(gradvane_torch_openmp INTERFACE OpenMP::OpenMP_CXX)
  endif()
endfunction()

if(GRADVANE_TORCH_DIR)
  # What a program that uses the installed library is held to, and how torch is linked there too.
  include(${CMAKE_CURRENT_LIST_DIR}/gradvaneRequirements.cmake)
  gradvane_describe_torch(${GRADVANE_TORCH_DIR} GRADVANE_BUILT_BESIDE)
  set(GRADVANE_TORCH_BY_HAND OFF)
  if(NOT GRADVANE_CUDA AND GRADVANE_BUILT_BESIDE MATCHES "with CUDA")
    set(GRADVANE_TORCH_BY_HAND ON)
  endif()
  gradvane_find_torch()
else()
  message(STATUS "No torch: collectors, agent and examples are left out. `make deps` brings it.")
endif()
