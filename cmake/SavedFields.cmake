# Makes the header hostcall_saved_fields.h of the records that Python writes into saved graphs, so
# that each field is written once.

set(records "${PROJECT_SOURCE_DIR}/plugin/hostcall/_saved/tokens.py"
            "${PROJECT_SOURCE_DIR}/plugin/hostcall/_functions/options.py")
set_property(
  DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${records}
                            "${CMAKE_CURRENT_LIST_DIR}/saved_fields.py")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/saved_fields.py" ${records}
  OUTPUT_VARIABLE SAVED_FIELDS
  COMMAND_ERROR_IS_FATAL ANY)
configure_file(cmake/hostcall_saved_fields.h.in include/hostcall_saved_fields.h @ONLY)
