# The runbooks of the alerts, as a source file of the library that serves them.

set(GRADVANE_RUNBOOK_DATA ${PROJECT_BINARY_DIR}/page/runbook_data.cpp)
set(runbook_folder ${PROJECT_SOURCE_DIR}/docs/runbooks)
file(GLOB runbook_files CONFIGURE_DEPENDS ${runbook_folder}/*.md)
add_custom_command(
  OUTPUT ${GRADVANE_RUNBOOK_DATA}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${runbook_folder} -DOUT=${GRADVANE_RUNBOOK_DATA}
    -P ${PROJECT_SOURCE_DIR}/cmake/embed_runbooks.cmake
  DEPENDS ${runbook_files} ${PROJECT_SOURCE_DIR}/cmake/embed_runbooks.cmake
  COMMENT "Packing the runbooks")
