# What Gradvane needs beside it, and the sentence that says what to do where it is missing. The build uses the
# first three functions too, so that a torch is described and linked alike there and where Gradvane is used.

# gradvane_describe_torch(<folder> <out>): "2.11 with CUDA 13", of the torch with share/cmake/Torch in the folder.
function(gradvane_describe_torch folder out)
  include(${folder}/share/cmake/Torch/TorchConfigVersion.cmake)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" release "${PACKAGE_VERSION}")
  set(cuda "without CUDA")
  if(EXISTS ${folder}/lib/libc10_cuda.so)
    # A libtorch without Python has no file that tells the version of CUDA, but the name of the runtime it loads does.
    file(STRINGS ${folder}/lib/libc10_cuda.so runtime LIMIT_COUNT 1 REGEX "libcudart[^/]*\\.so\\.[0-9]+")
    string(REGEX MATCH "\\.so\\.([0-9]+)" matched "${runtime}")
    set(cuda "with CUDA ${CMAKE_MATCH_1}")
  endif()
  set(${out} "${release} ${cuda}" PARENT_SCOPE)
endfunction()

# gradvane_keep_library(<target> <file>): has every program that links the target name this library, although it calls
# nothing of it. Ours needs it without knowing where it is, and the loader asks the program for that.
function(gradvane_keep_library target file)
  set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${file}
    "-Wl,--push-state,--no-as-needed,\"${file}\",--pop-state")
endfunction()

# gradvane_torch_by_hand(<target> <folder>): links a torch that has CUDA where there is no toolkit. Torch's own
# script refuses there, but what runs on CPUs needs no more than this.
function(gradvane_torch_by_hand target folder)
  target_include_directories(${target} SYSTEM INTERFACE
    ${folder}/include ${folder}/include/torch/csrc/api/include)
  foreach(library torch torch_cpu c10)
    gradvane_keep_library(${target} ${folder}/lib/lib${library}.so)
  endforeach()
endfunction()

# The folder of the torch that find_package would take, or empty. No torch has this version, so none of torch's
# scripts runs, which would look for CUDA first and end in an error of their own.
function(gradvane_torch_folder out)
  set(named "${Torch_DIR}")
  find_package(Torch 999999 EXACT QUIET CONFIG)
  if(named)
    set(Torch_DIR "${named}" CACHE PATH "The directory containing a CMake configuration file for Torch." FORCE)
  else()
    unset(Torch_DIR CACHE)
  endif()
  set(${out} "" PARENT_SCOPE)
  if(Torch_CONSIDERED_CONFIGS)
    list(GET Torch_CONSIDERED_CONFIGS 0 config)
    get_filename_component(folder "${config}/../../../.." ABSOLUTE)
    set(${out} "${folder}" PARENT_SCOPE)
  endif()
endfunction()

# gradvane_missing_libraries(<library> <out>): which of the libraries that Gradvane brings in the loader would not
# find. Others that it names are torch's and CUDA's, which the program brings, and what every system has.
function(gradvane_missing_libraries library out)
  execute_process(COMMAND ldd ${library} OUTPUT_VARIABLE says ERROR_QUIET)
  string(REGEX MATCHALL "lib(prometheus|yaml)-cpp[^ \t\n]* => not found" missing "${says}")
  list(TRANSFORM missing REPLACE " => not found" "")
  set(${out} "${missing}" PARENT_SCOPE)
endfunction()

# Whether there is a CUDA toolkit, which torch's script is then told of: by itself it does not look at CUDA_HOME,
# nor do its two searches look at the same variables.
function(gradvane_find_toolkit out)
  get_filename_component(of_compiler "${CMAKE_CUDA_COMPILER}" DIRECTORY)
  find_program(nvcc nvcc NO_CACHE PATH_SUFFIXES bin
    HINTS ${CUDA_TOOLKIT_ROOT_DIR} ${CUDAToolkit_ROOT} ${of_compiler} ENV CUDA_PATH
    PATHS ENV CUDA_HOME /usr/local/cuda /opt/cuda)
  if(nvcc)
    get_filename_component(root "${nvcc}/../.." ABSOLUTE)
    set(ENV{CUDA_PATH} "${root}")
  endif()
  set(${out} "${nvcc}" PARENT_SCOPE)
endfunction()

# gradvane_check(<why> <torch> BUILT_BESIDE <torch> TORCH_BY_HAND <bool> PREFIX <folder> LIBRARY <file>)
# Sets the first to the sentence that says what is missing, or to nothing, and the second to the folder of torch.
function(gradvane_check out_why out_torch)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "BUILT_BESIDE;TORCH_BY_HAND;PREFIX;LIBRARY" "")
  string(CONCAT configure "\n  cmake -B build \"-DCMAKE_PREFIX_PATH=${arg_PREFIX};"
    "$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')\"\n")
  set(why "")
  set(found "")
  gradvane_missing_libraries(${arg_LIBRARY} missing)
  gradvane_torch_folder(torch)
  if(torch)
    gradvane_describe_torch(${torch} found)
  endif()
  if(NOT torch AND NOT TORCH_LIBRARIES)
    set(why "gradvane finds no torch; it was built beside torch ${arg_BUILT_BESIDE}. Say where that is:${configure}")
  elseif(torch AND NOT found STREQUAL arg_BUILT_BESIDE)
    string(CONCAT why "gradvane was built beside torch ${arg_BUILT_BESIDE}, and this is torch ${found}: ${torch}. "
      "Name the other one:${configure}or build gradvane again with GRADVANE_TORCH_DIR set to this one.")
  elseif(missing)
    string(REPLACE ".so." "" packages "${missing}")
    string(REPLACE ";" " " packages "${packages}")
    string(REPLACE ";" " and " missing "${missing}")
    string(CONCAT why "gradvane needs ${missing}, which the loader does not find. On Debian and Ubuntu: "
      "apt install ${packages}. Elsewhere: install that version, or name its folder in LD_LIBRARY_PATH.")
  elseif(found MATCHES "with CUDA" AND NOT TORCH_LIBRARIES AND NOT arg_TORCH_BY_HAND)
    gradvane_find_toolkit(toolkit)
    if(NOT toolkit)
      string(CONCAT why "torch ${found} needs a CUDA toolkit of that version to be linked, and there is none to be "
        "found. Put its nvcc on PATH, or name its folder in the environment, as CUDA_PATH.")
    endif()
  endif()
  set(${out_why} "${why}" PARENT_SCOPE)
  set(${out_torch} "${torch}" PARENT_SCOPE)
endfunction()
