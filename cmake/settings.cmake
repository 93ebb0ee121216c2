# Where things are. `make deps` wrote it down; a -D on the command line wins over what it wrote.
#   GRADVANE_TORCH_DIR    the folder that holds share/cmake/Torch; empty: only what needs no torch
#   GRADVANE_CUDA_ROOT    a CUDA toolkit; empty: no CUDA
#   GRADVANE_VENV_PYTHON  the Python that runs tests
#   GRADVANE_SERVERS_DIR  the folder with prometheus, promtool and alertmanager
include(${CMAKE_CURRENT_LIST_DIR}/../.deps/settings.cmake OPTIONAL)

foreach(name TORCH_DIR CUDA_ROOT VENV_PYTHON SERVERS_DIR)
  if(NOT DEFINED GRADVANE_${name})
    set(GRADVANE_${name} "${deps_${name}}")
  endif()
endforeach()
