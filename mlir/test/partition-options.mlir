// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-partition{function=other})' --mlir-print-debuginfo | filecheck %s

// Another function than main, and locations: ops keep theirs, and a call of a cluster has that of the
// cluster's first op.
// CHECK: func.func @main
// CHECK-NEXT: %0 = stablehlo.custom_call @hostcall
// CHECK: func.func @other
// CHECK-NEXT: call @cluster_0(%arg0){{.*}} loc([[SINE:.*]])
// CHECK-NEXT: custom_call @hostcall{{.*}} loc([[CALL:.*]])
// CHECK: func.func private @cluster_0
// CHECK-NEXT: stablehlo.sine %arg0 : tensor<f32> loc([[SINE]])
// CHECK-DAG: [[SINE]] = loc("model.py":3:4)
// CHECK-DAG: [[CALL]] = loc("model.py":4:4)
func.func @main(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func @other(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %arg0 : tensor<f32> loc("model.py":3:4)
  %1 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32> loc("model.py":4:4)
  return %1 : tensor<f32>
}
