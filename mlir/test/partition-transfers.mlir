// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-partition,hostcall-check)' --split-input-file | filecheck %s

// A value that two calls take crosses once; what a call takes from another one does not cross at all, nor
// does what the device does not need.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = call @cluster_0
// CHECK-NEXT: custom_call @hostcall(%0, %arg1){{.*}}"pkg:one"{{.*}}, hostcall.to_host = array<i64: 0, 12, 1, 4>}
// CHECK-NEXT: custom_call @hostcall(%0, %1#0){{.*}}"pkg:other"{{.*}}, hostcall.to_device = array<i64: 0, 24>}
// CHECK-NEXT: call @cluster_1
func.func @main(%arg0: tensor<3xf32>, %arg1: tensor<2x2xi1>) -> tensor<3xcomplex<f32>> {
  %0 = stablehlo.sine %arg0 : tensor<3xf32>
  %1:2 = stablehlo.custom_call @hostcall(%0, %arg1) {api_version = 4 : i32, backend_config = {callback = "pkg:one", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, tensor<2x2xi1>) -> (tensor<3xbf16>, tensor<f64>)
  %2 = stablehlo.custom_call @hostcall(%0, %1#0) {api_version = 4 : i32, backend_config = {callback = "pkg:other", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, tensor<3xbf16>) -> tensor<3xcomplex<f32>>
  %3 = stablehlo.negate %2 : tensor<3xcomplex<f32>>
  return %3 : tensor<3xcomplex<f32>>
}

// -----

// Tokens hold nothing. What the function returns is on the device.
// CHECK-LABEL: func.func @main
// CHECK: custom_call @hostcall(%arg0, %arg1){{.*}} has_side_effect = true, hostcall.to_device = array<i64: 0, 4>, hostcall.to_host = array<i64: 0, 4>}
// CHECK-NEXT: custom_call @hostcall(%0#0, %0#1){{.*}} has_side_effect = true}
// CHECK-NEXT: return
func.func @main(%arg0: tensor<f32>, %arg1: !stablehlo.token) -> (tensor<f32>, !stablehlo.token) {
  %0:2 = stablehlo.custom_call @hostcall(%arg0, %arg1) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>, !stablehlo.token) -> (tensor<f32>, !stablehlo.token)
  %1:2 = stablehlo.custom_call @hostcall(%0#0, %0#1) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>, !stablehlo.token) -> (tensor<f32>, !stablehlo.token)
  return %0#0, %1#1 : tensor<f32>, !stablehlo.token
}

// -----

// Of a tuple, what the device takes out of it. A value of bounded size crosses whole, with its true size.
// CHECK-LABEL: func.func @main
// CHECK: custom_call @hostcall(%arg0){{.*}}"pkg:first"{{.*}}, hostcall.to_device = array<i64: 1, 8>, hostcall.to_host = array<i64: 0, 4>}
// CHECK: custom_call @hostcall({{.*}}"pkg:second"{{.*}}, hostcall.to_host = array<i64: 0, 24, 2, 4>}
func.func @main(%arg0: tensor<f32>, %arg1: tensor<?xf32, #stablehlo.bounds<5>>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:first", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tuple<tensor<f32>, tensor<2xf32>>
  %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<f32>, tensor<2xf32>>) -> tensor<f32>
  %2 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<f32>, tensor<2xf32>>) -> tensor<2xf32>
  %3 = stablehlo.negate %arg1 : tensor<?xf32, #stablehlo.bounds<5>>
  %4 = stablehlo.get_dimension_size %3, dim = 0 : (tensor<?xf32, #stablehlo.bounds<5>>) -> tensor<i32>
  stablehlo.custom_call @hostcall(%3, %1, %4) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:second", dynamic_operands = array<i64: 0, 0>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<?xf32, #stablehlo.bounds<5>>, tensor<f32>, tensor<i32>) -> ()
  return %2 : tensor<2xf32>
}

// -----

// What decides which way the function goes is read on the host. What comes from outside of a loop crosses in it,
// what the loop carries in each iteration; what crossed before does not cross again.
// CHECK-LABEL: func.func @main
// CHECK: custom_call @hostcall(%arg1){{.*}}hostcall.to_device = array<i64: 0, 4>, hostcall.to_host = array<i64: 0, 4>}
// CHECK: stablehlo.while
// CHECK-NEXT: cond {
// CHECK-NEXT: call @cluster_0
// CHECK-NEXT: stablehlo.return {{.*}}{hostcall.to_host = array<i64: 0, 1>}
// CHECK: "stablehlo.case"
// CHECK: custom_call @hostcall(%iterArg, %arg1){{.*}}hostcall.to_device = array<i64: 0, 4>, hostcall.to_host = array<i64: 0, 4>}
// CHECK: }) {hostcall.to_host = array<i64: 0, 4>}
func.func @main(%arg0: tensor<i32>, %arg1: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.while(%iterArg = %0) : tensor<f32>
  cond {
    %2 = stablehlo.compare LT, %iterArg, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  } do {
    %2 = "stablehlo.case"(%arg0) ({
      %3 = stablehlo.custom_call @hostcall(%iterArg, %arg1) {api_version = 4 : i32, backend_config = {callback = "pkg:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %3 : tensor<f32>
    }, {
      stablehlo.return %iterArg : tensor<f32>
    }) : (tensor<i32>) -> tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }
  return %1 : tensor<f32>
}
