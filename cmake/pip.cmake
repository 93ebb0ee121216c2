# What pip builds for: the Python that runs it, torch as that Python finds it, and a CUDA toolkit of the
# major version that this torch has, if there is one.

set(deps_VENV_PYTHON ${Python_EXECUTABLE})
if(NOT deps_VENV_PYTHON)
  set(deps_VENV_PYTHON ${PYTHON_EXECUTABLE})
endif()

# -I: pip hides the environment's packages from a build by way of PYTHONPATH. Torch is looked up, not
# imported: that takes seconds.
execute_process(
  COMMAND ${deps_VENV_PYTHON} -I -c
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
  OUTPUT_VARIABLE deps_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS "${deps_TORCH_DIR}/version.py" AND NOT GRADVANE_TORCH_DIR)
  message(FATAL_ERROR "gradvane needs torch 2.9 or newer in the environment it is installed into, and "
    "${deps_VENV_PYTHON} finds none. Install torch first. If it is there and hidden (uv, python -m build), "
    "build without isolation: pip install scikit-build-core 'cmake>=3.31', then "
    "pip install --no-build-isolation .")
endif()

function(gradvane_torch_says name out)
  file(STRINGS ${deps_TORCH_DIR}/version.py line REGEX "^${name}[ :=]")
  string(REGEX REPLACE "^[^=]*= *'?([^']*)'?.*$" "\\1" value "${line}")
  set(${out} "${value}" PARENT_SCOPE)
endfunction()
gradvane_torch_says(__version__ torch)
gradvane_torch_says(cuda torch_cuda)
if(torch VERSION_LESS 2.9)
  message(FATAL_ERROR "gradvane needs torch 2.9 or newer; this environment has ${torch}.")
endif()

# The first toolkit of the right major version.
set(toolkits ${GRADVANE_CUDA_ROOT} $ENV{CUDA_HOME} ${deps_CUDA_ROOT} /usr/local/cuda)
set(deps_CUDA_ROOT "")
string(REGEX MATCH "^[0-9]+" wanted "${torch_cuda}")
if(wanted)
  foreach(toolkit IN LISTS toolkits)
    if(NOT EXISTS ${toolkit}/bin/nvcc)
      continue()
    endif()
    execute_process(COMMAND ${toolkit}/bin/nvcc --version OUTPUT_VARIABLE says ERROR_QUIET)
    if(says MATCHES "release ${wanted}\\.")
      set(deps_CUDA_ROOT ${toolkit})
      break()
    endif()
  endforeach()
endif()
if(deps_CUDA_ROOT)
  message(STATUS "gradvane for torch ${torch}, with CUDA from ${deps_CUDA_ROOT}")
else()
  message(STATUS "gradvane for torch ${torch}, for CPUs only: no CUDA ${wanted} toolkit (set CUDA_HOME to one)")
endif()
