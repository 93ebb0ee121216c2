# Where things are. `make deps` wrote it down; a -D on the command line wins over what it wrote. Under pip
# torch is that of the Python it installs for, whatever `make deps` has.
#   GRADVANE_TORCH_DIR    the folder that holds share/cmake/Torch; empty: only what needs no torch
#   GRADVANE_CUDA_ROOT    a CUDA toolkit; empty: no CUDA
#   GRADVANE_VENV_PYTHON  the Python that runs tests
#   GRADVANE_SERVERS_DIR  the folder with prometheus, promtool and alertmanager
#   GRADVANE_NODE         Node, which bundles the page
#   GRADVANE_PAGE_MODULES the packages it bundles
include(${CMAKE_CURRENT_LIST_DIR}/../.deps/settings.cmake OPTIONAL)

if(SKBUILD)
  include(${CMAKE_CURRENT_LIST_DIR}/pip.cmake)
endif()

foreach(name TORCH_DIR CUDA_ROOT VENV_PYTHON SERVERS_DIR NODE PAGE_MODULES)
  if(NOT DEFINED GRADVANE_${name})
    set(GRADVANE_${name} "${deps_${name}}")
  endif()
endforeach()
