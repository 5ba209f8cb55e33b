# XLA's header-only FFI, ours (third_party/): the target xla_ffi, with nothing of TensorFlow's. Sets
# XLA_FFI_API_MAJOR and XLA_FFI_API_MINOR.

set(ffi_headers "${PROJECT_SOURCE_DIR}/third_party/xla/ffi/api")
foreach(part IN ITEMS MAJOR MINOR)
  file(STRINGS "${ffi_headers}/c_api.h" line REGEX "^#define XLA_FFI_API_${part} [0-9]+$")
  string(REGEX MATCH "[0-9]+$" XLA_FFI_API_${part} "${line}")
endforeach()

# They come before TensorFlow's, of whatever version those are.
file(COPY "${ffi_headers}" DESTINATION "${PROJECT_BINARY_DIR}/include/xla/ffi")
add_library(xla_ffi INTERFACE)
target_include_directories(xla_ffi SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/include")
