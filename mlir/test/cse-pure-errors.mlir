// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-cse-pure)' | filecheck %s
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-cse-pure{effects=true})' 2>&1 | filecheck %s --check-prefix=OPTION
// OPTION: hostcall-opt: error: hostcall-cse-pure: no such option: 'effects=true'. Its options are: none.

// What may not be shared: calls with a side effect, of another function, or with other attributes.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-5: custom_call @hostcall(%arg0)
// CHECK-NOT: custom_call
// CHECK: return
func.func @main(%arg0: tensor<3xi8>) -> (tensor<3xi8>, tensor<3xi8>, tensor<3xi8>) {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xi8>) -> tensor<3xi8>
  %1 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xi8>) -> tensor<3xi8>
  %2 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xi8>) -> tensor<3xi8>
  %3 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xi8>) -> tensor<3xi8>
  %4 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64>}} : (tensor<3xi8>) -> tensor<3xi8>
  return %2, %3, %4 : tensor<3xi8>, tensor<3xi8>, tensor<3xi8>
}
