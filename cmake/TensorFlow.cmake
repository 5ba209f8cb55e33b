# Finds the TensorFlow that the building Python imports, or the one that HOSTCALL_TENSORFLOW names.
# Sets TENSORFLOW_VERSION, TENSORFLOW_CXX11_ABI_FLAG, TENSORFLOW_INCLUDE_DIR, and HOSTCALL_BUILT, where
# the modules are installed that fit this minor version alone. Makes two targets to link with:
#   tensorflow         all of TensorFlow's headers, compile flags and libraries
#   tensorflow_python  what makes EagerTensors

set(HOSTCALL_TENSORFLOW "" CACHE PATH "An unpacked wheel of the TensorFlow to build against")

# Sets `variable` to what tells one TensorFlow from another: who imports it, and the file of its library.
function(identify variable library_dir)
  set(library "${library_dir}/libtensorflow_framework.so.2")
  if(EXISTS "${library}")
    file(SIZE "${library}" size)
    file(TIMESTAMP "${library}" time)
    set(${variable} "${Python_EXECUTABLE} ${HOSTCALL_TENSORFLOW} ${size} ${time}" PARENT_SCOPE)
  endif()
endfunction()

# It takes seconds to answer, so it is asked once.
list(GET HOSTCALL_TENSORFLOW_ANSWER 1 library_dir)
identify(identity "${library_dir}")
if(NOT HOSTCALL_TENSORFLOW_ANSWER OR NOT identity STREQUAL HOSTCALL_TENSORFLOW_IDENTITY)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
            "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_tensorflow.py" ${HOSTCALL_TENSORFLOW}
    OUTPUT_STRIP_TRAILING_WHITESPACE
    OUTPUT_VARIABLE answer
    COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" answer "${answer}")
  set(HOSTCALL_TENSORFLOW_ANSWER "${answer}" CACHE INTERNAL "")
  list(GET answer 1 library_dir)
  identify(identity "${library_dir}")
  set(HOSTCALL_TENSORFLOW_IDENTITY "${identity}" CACHE INTERNAL "")
endif()
set(answer "${HOSTCALL_TENSORFLOW_ANSWER}")
list(POP_FRONT answer TENSORFLOW_VERSION library_dir)
set(definitions ${answer})
set(TENSORFLOW_INCLUDE_DIR "${library_dir}/include")
string(REGEX MATCH "_GLIBCXX_USE_CXX11_ABI=([01])" matched "${definitions}")
set(TENSORFLOW_CXX11_ABI_FLAG ${CMAKE_MATCH_1})
message(STATUS "Found TensorFlow ${TENSORFLOW_VERSION}: ${library_dir}")
if(TENSORFLOW_VERSION VERSION_LESS 2.19)
  message(FATAL_ERROR "hostcall needs TensorFlow 2.19 or later: see docs/versions.md.")
endif()

string(REGEX REPLACE "^([0-9]+)\\.([0-9]+).*" "\\1_\\2" minor_version "${TENSORFLOW_VERSION}")
set(HOSTCALL_BUILT "hostcall/_built/tensorflow_${minor_version}")
# From there to the TensorFlow that lies beside hostcall. Python has loaded it already; a server
# without Python may not have.
set(HOSTCALL_RUNPATH "$ORIGIN/../../../tensorflow")

add_library(tensorflow INTERFACE)
target_include_directories(
  tensorflow SYSTEM
  INTERFACE "${TENSORFLOW_INCLUDE_DIR}" "${TENSORFLOW_INCLUDE_DIR}/external/highwayhash"
            "${TENSORFLOW_INCLUDE_DIR}/external/farmhash_archive/src")
# What older versions lack is looked for last.
if(TENSORFLOW_VERSION VERSION_LESS 2.20)
  target_include_directories(
    tensorflow SYSTEM INTERFACE "${PROJECT_SOURCE_DIR}/csrc/compat/include")
endif()
target_compile_options(tensorflow INTERFACE ${definitions})
# launch.cc wants Eigen's thread pools, and files that are compiled together share the first include.
target_compile_definitions(tensorflow INTERFACE EIGEN_USE_THREADS=)
target_link_directories(tensorflow INTERFACE "${library_dir}")
target_link_libraries(
  tensorflow INTERFACE -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2)
# GNU ld takes seconds to read these libraries, and gold a fifth of that.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold HOSTCALL_GOLD)
if(HOSTCALL_GOLD)
  target_link_options(tensorflow INTERFACE -fuse-ld=gold)
endif()

add_library(tensorflow_python INTERFACE)
target_link_directories(tensorflow_python INTERFACE "${library_dir}/python")
target_link_libraries(tensorflow_python INTERFACE -l:lib_pywrap_tensorflow_common.so)
