# Finds the TensorFlow that the building Python imports. Sets TENSORFLOW_VERSION,
# TENSORFLOW_CXX11_ABI_FLAG, XLA_FFI_API_MAJOR and XLA_FFI_API_MINOR, and makes three targets to
# link with:
#   xla_ffi            XLA's header-only FFI, ours (third_party/), and nothing of TensorFlow's
#   tensorflow         all of TensorFlow's headers, compile flags and libraries
#   tensorflow_python  what makes EagerTensors

set(query [[
from tensorflow import __version__, sysconfig
print(__version__, sysconfig.CXX11_ABI_FLAG, sysconfig.get_include(), sysconfig.get_lib(), sep="\n")
print(*(flag for flag in sysconfig.get_compile_flags() if flag.startswith("-D")), sep="\n")
]])
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0 "${Python_EXECUTABLE}" -c "${query}"
  OUTPUT_STRIP_TRAILING_WHITESPACE
  OUTPUT_VARIABLE answer
  COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" answer "${answer}")
list(POP_FRONT answer TENSORFLOW_VERSION TENSORFLOW_CXX11_ABI_FLAG include_dir library_dir)
set(definitions ${answer})
message(STATUS "Found TensorFlow ${TENSORFLOW_VERSION}: ${include_dir}")

set(ffi_headers "${PROJECT_SOURCE_DIR}/third_party/xla/ffi/api")
foreach(part IN ITEMS MAJOR MINOR)
  file(STRINGS "${ffi_headers}/c_api.h" line REGEX "^#define XLA_FFI_API_${part} [0-9]+$")
  string(REGEX MATCH "[0-9]+$" XLA_FFI_API_${part} "${line}")
endforeach()

# Ours come before TensorFlow's, of whatever version those are.
file(COPY "${ffi_headers}" DESTINATION "${PROJECT_BINARY_DIR}/include/xla/ffi")
add_library(xla_ffi INTERFACE)
target_include_directories(xla_ffi SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/include")

add_library(tensorflow INTERFACE)
target_include_directories(
  tensorflow SYSTEM
  INTERFACE "${include_dir}" "${include_dir}/external/highwayhash"
            "${include_dir}/external/farmhash_archive/src")
# What older versions lack, or have elsewhere, is looked for last.
if(TENSORFLOW_VERSION VERSION_LESS 2.20)
  target_include_directories(
    tensorflow SYSTEM INTERFACE "${PROJECT_SOURCE_DIR}/csrc/compat/include")
endif()
target_compile_options(tensorflow INTERFACE ${definitions})
target_link_directories(tensorflow INTERFACE "${library_dir}")
target_link_libraries(
  tensorflow INTERFACE -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2)

set(python_library lib_pywrap_tensorflow_common.so)
if(TENSORFLOW_VERSION VERSION_LESS 2.19)
  set(python_library _pywrap_tensorflow_internal.so)
endif()
add_library(tensorflow_python INTERFACE)
target_link_directories(tensorflow_python INTERFACE "${library_dir}/python")
target_link_libraries(tensorflow_python INTERFACE -l:${python_library})
