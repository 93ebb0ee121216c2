# What pip builds for: the Python that runs it, and every torch. Devices are read where there is a CUDA toolkit.

set(deps_VENV_PYTHON ${Python_EXECUTABLE})
if(NOT deps_VENV_PYTHON)
  set(deps_VENV_PYTHON ${PYTHON_EXECUTABLE})
endif()
set(deps_TORCH_DIR "")

# The first toolkit that there is. Its runtime goes into the package: that of torch may be another one.
set(toolkits ${GRADVANE_CUDA_ROOT} $ENV{CUDA_HOME} ${deps_CUDA_ROOT} /usr/local/cuda)
set(deps_CUDA_ROOT "")
foreach(toolkit IN LISTS toolkits)
  if(EXISTS ${toolkit}/bin/nvcc)
    set(deps_CUDA_ROOT ${toolkit})
    break()
  endif()
endforeach()
if(deps_CUDA_ROOT)
  message(STATUS "gradvane with CUDA from ${deps_CUDA_ROOT}")
else()
  message(STATUS "gradvane for CPUs only: no CUDA toolkit (set CUDA_HOME to one)")
endif()
