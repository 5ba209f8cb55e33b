// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-resolve{names=3=a:f})' --verify-diagnostics
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-resolve{names=a:f=3})' 2>&1 | filecheck %s
// CHECK: hostcall-opt: error: hostcall-resolve: 'a:f' is not a callback id

func.func @main(%x: tensor<3xf32>) {
  // expected-error@below {{hostcall-resolve: no callback id is given for 'a:g'; add it to 'names'}}
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return
}
