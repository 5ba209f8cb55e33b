// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-from-jax)' --split-input-file --verify-diagnostics
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-from-jax{callbacks=0=a:f})' --split-input-file 2>&1 | filecheck %s
// CHECK: hostcall-opt: error: hostcall-from-jax: 'a:f' of option 'callbacks' is not a callback id

func.func @main(%x: tensor<3xf32>) {
  // expected-error@below {{'xla_ffi_python_gpu_callback' is not a call of the CPU's; lower the program with platforms=('cpu',)}}
  stablehlo.custom_call @xla_ffi_python_gpu_callback(%x) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}} : (tensor<3xf32>) -> ()
  // expected-error@below {{'xla_ffi_python_cpu_callback' without the index of a function in mhlo.backend_config}}
  stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {backend_config = ""} : (tensor<3xf32>) -> ()
  return
}

// -----

func.func @main(%x: tensor<3xf32>, %t: !stablehlo.token) {
  // expected-error@below {{with a token that is not its first operand and its first result}}
  %0:2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x, %t) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
  // expected-error@below {{with a token that is not its first operand and its first result}}
  stablehlo.custom_call @xla_ffi_python_cpu_callback(%t) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}} : (!stablehlo.token) -> ()
  return
}

// -----

func.func @main(%i: tensor<i32>, %x: tensor<3xf32>) -> tensor<3xf32> {
  // expected-error@below {{'hostcall_joint' is a call that several devices make together, and host calls are made by one; lower the program for one device}}
  %0 = stablehlo.custom_call @hostcall_joint(%i, %x) {backend_config = "", mhlo.backend_config = {callback = 5 : i64, devices = 8 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, shards = 1 : i64, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<i32>, tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
