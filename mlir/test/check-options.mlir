// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-check{known=np.linalg:inv,a:f})' --split-input-file --verify-diagnostics
// RUN: echo '{"3":"a:f","4":"np.linalg:inv"}' > %t.json
// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-check{file=%t.json})' --split-input-file --verify-diagnostics

func.func @main(%x: tensor<3xf32>) {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{'a:g' is not among the known functions: 'a:f', 'np.linalg:inv'}}
  %1 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @main(%x: tensor<3xf32>) {
  // expected-error@below {{callback 3 is a callback id, which means nothing in another process; hostcall-name writes a name in its place}}
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return
}
