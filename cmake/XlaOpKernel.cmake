# Makes the header hostcall_xla_op_kernel.h: what kernels of XLA's need of TensorFlow's headers, and
# none of the rest, which takes most of a build.

set_property(
  DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/xla_op_kernel.py")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/xla_op_kernel.py"
          "${TENSORFLOW_INCLUDE_DIR}"
  OUTPUT_VARIABLE XLA_OP_KERNEL
  COMMAND_ERROR_IS_FATAL ANY)
configure_file(cmake/hostcall_xla_op_kernel.h.in include/hostcall_xla_op_kernel.h @ONLY)
