// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-resolve{names=3=numpy:sin,4=pkg.mod:C.method})' | filecheck %s
// RUN: echo '{"3": "numpy:sin", "4": "pkg.mod:C.method"}' > %t.json
// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-resolve{file=%t.json})' | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "numpy:sin", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// Calls in regions get callback ids too, those that have one keep it, and other targets are none of ours.
// CHECK-LABEL: func.func @nested
func.func @nested(%i: tensor<i32>, %x: tensor<i8>) -> tensor<i8> {
  %0 = "stablehlo.case"(%i) ({
    // CHECK: custom_call @hostcall{{.*}}callback = 4 : i64{{.*}}sub_byte_operands = array<i64: 0, 21>
    %1 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "pkg.mod:C.method", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64>}} : (tensor<i8>) -> tensor<i8>
    stablehlo.return %1 : tensor<i8>
  }, {
    // CHECK: custom_call @hostcall{{.*}}callback = 9 : i64
    %1 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = 9 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<i8>) -> tensor<i8>
    // CHECK: custom_call @other{{.*}}callback = 3 : i64
    %2 = stablehlo.custom_call @other(%1) {api_version = 4 : i32, backend_config = {callback = 3 : i64}} : (tensor<i8>) -> tensor<i8>
    stablehlo.return %2 : tensor<i8>
  }) : (tensor<i32>) -> tensor<i8>
  return %0 : tensor<i8>
}
