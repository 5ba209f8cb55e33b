// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-cse-pure)' | filecheck %s
// RUN: hostcall-opt %s --pass-pipeline='builtin.module(cse,hostcall-cse-pure,cse,hostcall-cse-pure)' | filecheck %s --check-prefix=MORE

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = stablehlo.custom_call @hostcall(%arg0)
// CHECK-NEXT: %1 = stablehlo.add %0, %0
// CHECK-NEXT: return %1
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.add %0, %1 : tensor<3xf32>
  return %2 : tensor<3xf32>
}

// A chain shares link by link; ops between the calls are shared by MLIR's cse.
// CHECK-LABEL: func.func @chain
// CHECK-COUNT-3: custom_call @hostcall
// CHECK-NOT: custom_call
// CHECK: return
// MORE-LABEL: func.func @chain
// MORE-COUNT-2: custom_call @hostcall
// MORE-NOT: custom_call
// MORE: return
func.func @chain(%arg0: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.sine %0 : tensor<3xf32>
  %3 = stablehlo.sine %1 : tensor<3xf32>
  %4 = stablehlo.custom_call @hostcall(%2) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %5 = stablehlo.custom_call @hostcall(%3) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %4, %5 : tensor<3xf32>, tensor<3xf32>
}

// A branch takes what has been called before it; two branches, and what is behind them, share nothing.
// CHECK-LABEL: func.func @regions
// CHECK: %[[CALL:.*]] = stablehlo.custom_call @hostcall(%arg1){{.*}}callback = 1 : i64
// CHECK: "stablehlo.case"
// CHECK-NEXT: %[[ONE:.*]] = stablehlo.custom_call @hostcall(%arg1){{.*}}callback = 2 : i64
// CHECK-NEXT: stablehlo.add %[[CALL]], %[[ONE]]
// CHECK: }, {
// CHECK-NEXT: %[[OTHER:.*]] = stablehlo.custom_call @hostcall(%arg1){{.*}}callback = 2 : i64
// CHECK-NEXT: stablehlo.return %[[OTHER]]
// CHECK: stablehlo.custom_call @hostcall(%arg1){{.*}}callback = 2 : i64
func.func @regions(%arg0: tensor<i32>, %arg1: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %0 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %1 = "stablehlo.case"(%arg0) ({
    %2 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %3 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %4 = stablehlo.add %2, %3 : tensor<f32>
    stablehlo.return %4 : tensor<f32>
  }, {
    %2 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  %5 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  return %0, %1, %5 : tensor<f32>, tensor<f32>, tensor<f32>
}
