// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-dce)' | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: custom_call @hostcall(%arg0){{.*}}"pkg:log"
// CHECK-NEXT: return %arg0
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.sine %arg0 : tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %arg0 : tensor<3xf32>
}

// A chain of pure calls, the last without results, as it can do nothing.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT: return
func.func @chain(%arg0: tensor<3xf32>) {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.negate %0 : tensor<3xf32>
  stablehlo.custom_call @hostcall(%1) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> ()
  return
}

// Functions: one that makes a pure call alone, and one that makes another too.
// CHECK-LABEL: func.func @calls
// CHECK-NEXT: call @effectful
// CHECK-NEXT: return
func.func @calls(%arg0: tensor<3xf32>) {
  %0 = func.call @pure(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = func.call @effectful(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
  return
}
func.func private @pure(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func private @effectful(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = func.call @pure(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = func.call @log(%0) : (tensor<3xf32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}
func.func private @log(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> ()
  return %arg0 : tensor<3xf32>
}

// Ops with regions go whole, or stay where a region has an effect; what is dead in that one goes.
// CHECK-LABEL: func.func @regions
// CHECK-NEXT: "stablehlo.case"
// CHECK-NEXT: custom_call @hostcall(%arg1){{.*}}"pkg:log"
// CHECK-NEXT: stablehlo.return
// CHECK-NEXT: })
// CHECK-NEXT: return
func.func @regions(%arg0: tensor<i32>, %arg1: tensor<f32>) {
  %0 = "stablehlo.case"(%arg0) ({
    %2 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  %3 = stablehlo.negate %arg1 : tensor<f32>
  %1 = "stablehlo.case"(%arg0) ({
    %2 = stablehlo.custom_call @hostcall(%3) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> ()
    stablehlo.return %arg1 : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  return
}
