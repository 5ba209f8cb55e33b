# Makes the header hostcall_attributes.h of the names that Python has, so that each is written once.

set(names "${PROJECT_SOURCE_DIR}/plugin/hostcall/_tf/graph/attributes.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${names}")
file(STRINGS "${names}" lines REGEX "^[A-Z_]+ = \"_hostcall_[a-z_]+\"")
set(ATTRIBUTES "")
foreach(line IN LISTS lines)
  string(REGEX MATCH "^([A-Z_]+) = (\"[a-z_]+\")" matched "${line}")
  string(APPEND ATTRIBUTES "inline constexpr char ${CMAKE_MATCH_1}[] = ${CMAKE_MATCH_2};\n")
endforeach()
configure_file(cmake/hostcall_attributes.h.in include/hostcall_attributes.h @ONLY)
