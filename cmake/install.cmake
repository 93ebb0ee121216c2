# The shared library and its package, so that find_package(gradvane) works from an installed tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# What has no component of its own is for C++. What pip installs is the component python.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME cpp)
install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY LICENSES DESTINATION ${CMAKE_INSTALL_DOCDIR})

# gradvane_shared_library(<target> LAYERS <layer>...)
# Target gradvane::<target>: ONE shared library of the layers. Whole archives, because nothing inside
# refers to the public functions; only what is marked GRADVANE_API leaves (tests/exported_symbols.txt).
function(gradvane_shared_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LAYERS")
  # CMake wants a source file; everything is in the layers.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${target}.cpp CONTENT "// made of: @arg_LAYERS@\n" @ONLY)
  add_library(${target} SHARED ${PROJECT_BINARY_DIR}/${target}.cpp)
  add_library(gradvane::${target} ALIAS ${target})
  foreach(layer IN LISTS arg_LAYERS)
    target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,gradvane_${layer}>)
  endforeach()
  # A version script too: visibility cannot hide the templates of others that we instantiate.
  set(script ${PROJECT_SOURCE_DIR}/cmake/exported.map)
  target_link_options(${target} PRIVATE -Wl,--version-script=${script} -Wl,-z,defs)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS ${script})
  gradvane_install(${target})
endfunction()

# gradvane_install(<target>)
# Installs the library, its one header and lib/cmake/gradvane. Torch is the user's: it is found when
# the package is, and nothing of this machine's paths stays in the library.
function(gradvane_install target)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/agent/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} INTERFACE $<BUILD_INTERFACE:gradvane::torch>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  set_target_properties(${target} PROPERTIES EXPORT_NAME gradvane INSTALL_RPATH "$ORIGIN"
    INSTALL_REMOVE_ENVIRONMENT_RPATH ON)

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradvane)
  install(TARGETS ${target} EXPORT gradvaneTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/agent/include/gradvane DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT gradvaneTargets NAMESPACE gradvane:: DESTINATION ${package_dir})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradvaneConfig.cmake.in
    ${PROJECT_BINARY_DIR}/gradvaneConfig.cmake INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR)
  # Before 1.0 every minor release may break the interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradvaneConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/gradvaneConfig.cmake ${PROJECT_BINARY_DIR}/gradvaneConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/cmake/gradvaneRequirements.cmake DESTINATION ${package_dir})
endfunction()
