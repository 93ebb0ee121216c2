# The CUDA language, from the toolkit that `make deps` laid out (or CUDA_HOME).
# It must be on before torch is looked for: torch's own scripts enable it too, with flags of theirs.

set(found OFF)
if(GRADVANE_CUDA_ROOT AND EXISTS ${GRADVANE_CUDA_ROOT}/bin/nvcc)
  set(found ON)
endif()
option(GRADVANE_CUDA "Build the CUDA half of the pass" ${found})

if(found)
  # What we build for: Ampere and Hopper, and Blackwell's data-centre parts; or what the command line
  # says. That is taken out of the cache, where torch's scripts would warn of it.
  if(DEFINED CACHE{CMAKE_CUDA_ARCHITECTURES})
    set(GRADVANE_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CACHE INTERNAL "")
    unset(CMAKE_CUDA_ARCHITECTURES CACHE)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 80 90 100)
  if(SKBUILD)  # the package runs on all that torch runs on, and on what is to come by the last one's PTX
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90-real 100-real 120)
  endif()
  if(GRADVANE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${GRADVANE_CUDA_ARCHITECTURES})
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # torch links the shared runtime; a second, static one in the same process would be another world.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  set(CUDAToolkit_ROOT ${GRADVANE_CUDA_ROOT})
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${GRADVANE_CUDA_ROOT}/bin/nvcc)
  endif()
  enable_language(CUDA)
  if(CMAKE_VERSION VERSION_LESS 3.25.2)  # these compile .cu files as C++17 without a word
    add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  endif()
  find_package(CUDAToolkit REQUIRED)
elseif(GRADVANE_CUDA)
  message(FATAL_ERROR "GRADVANE_CUDA is ON and there is no toolkit. Run `make deps`, or set "
    "GRADVANE_CUDA_ROOT to one, or GRADVANE_CUDA to OFF.")
endif()
