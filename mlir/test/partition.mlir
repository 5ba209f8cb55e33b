// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-partition)' --split-input-file | filecheck %s
// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-partition,hostcall-check)' --split-input-file --mlir-print-op-generic > %t

// What does not wait for the call runs before it; what is passed on is what is used.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0:2 = call @cluster_0(%arg0)
// CHECK-NEXT: %1 = stablehlo.custom_call @hostcall(%0#0)
// CHECK-NEXT: %2 = call @cluster_1(%1, %0#1)
// CHECK-NEXT: return %2
// CHECK-LABEL: func.func private @cluster_0(%arg0: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
// CHECK-NEXT: %0 = stablehlo.sine %arg0
// CHECK-NEXT: %1 = stablehlo.cosine %arg0
// CHECK-NEXT: return %0, %1
// CHECK-LABEL: func.func private @cluster_1
// CHECK-NEXT: %0 = stablehlo.add %arg0, %arg1
// CHECK-NEXT: return %0
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.sine %arg0 : tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.cosine %arg0 : tensor<3xf32>
  %3 = stablehlo.add %1, %2 : tensor<3xf32>
  return %3 : tensor<3xf32>
}

// -----

// As few clusters as there are on the longest way: two here, although there are four device ops, each
// with a host call before or behind it.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = stablehlo.custom_call @hostcall(%arg0){{.*}}"pkg:first"
// CHECK-NEXT: %1:2 = call @cluster_0(%0, %arg0)
// CHECK-NEXT: %2 = stablehlo.custom_call @hostcall(%1#0){{.*}}"pkg:second"
// CHECK-NEXT: %3 = stablehlo.custom_call @hostcall(%1#1){{.*}}"pkg:third"
// CHECK-NEXT: %4 = stablehlo.custom_call @hostcall(%3){{.*}}"pkg:fourth"
// CHECK-NEXT: %5:2 = call @cluster_1(%2, %4)
// CHECK-NEXT: return %5#0, %5#1
// CHECK-NOT: @cluster_2
func.func @main(%arg0: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:first", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.negate %0 : tensor<f32>
  %2 = stablehlo.custom_call @hostcall(%1) {api_version = 4 : i32, backend_config = {callback = "pkg:second", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %3 = stablehlo.negate %2 : tensor<f32>
  %4 = stablehlo.sine %arg0 : tensor<f32>
  %5 = stablehlo.custom_call @hostcall(%4) {api_version = 4 : i32, backend_config = {callback = "pkg:third", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %6 = stablehlo.custom_call @hostcall(%5) {api_version = 4 : i32, backend_config = {callback = "pkg:fourth", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %7 = stablehlo.cosine %6 : tensor<f32>
  return %3, %7 : tensor<f32>, tensor<f32>
}

// -----

// Tokens order calls and go from one to the next in @main, together with what makes and joins them.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = stablehlo.create_token
// CHECK-NEXT: %1 = stablehlo.after_all %0, %arg1
// CHECK-NEXT: %2:2 = stablehlo.custom_call @hostcall(%arg0, %1){{.*}}"pkg:first"
// CHECK-NEXT: %3 = call @cluster_0(%2#0)
// CHECK-NEXT: %4:2 = stablehlo.custom_call @hostcall(%3, %2#1){{.*}}"pkg:second"
// CHECK-NEXT: return %4#0, %4#1
func.func @main(%arg0: tensor<f32>, %arg1: !stablehlo.token) -> (tensor<f32>, !stablehlo.token) {
  %0 = stablehlo.create_token : !stablehlo.token
  %1 = stablehlo.after_all %0, %arg1 : !stablehlo.token
  %2:2 = stablehlo.custom_call @hostcall(%arg0, %1) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:first", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>, !stablehlo.token) -> (tensor<f32>, !stablehlo.token)
  %3 = stablehlo.negate %2#0 : tensor<f32>
  %4:2 = stablehlo.custom_call @hostcall(%3, %2#1) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:second", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>, !stablehlo.token) -> (tensor<f32>, !stablehlo.token)
  return %4#0, %4#1 : tensor<f32>, !stablehlo.token
}

// -----

// TensorFlow's calls have one tuple as their result, which is taken apart in @main.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = stablehlo.custom_call @hostcall(%arg0){{.*}} -> tuple<tensor<f32>, tensor<2xf32>>
// CHECK-NEXT: %1 = stablehlo.get_tuple_element %0[0]
// CHECK-NEXT: %2 = call @cluster_0(%1)
// CHECK-NEXT: return %2
func.func @main(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tuple<tensor<f32>, tensor<2xf32>>
  %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<f32>, tensor<2xf32>>) -> tensor<f32>
  %2 = stablehlo.negate %1 : tensor<f32>
  return %2 : tensor<f32>
}

// -----

// Loops and branches with calls in them stay in @main, and their regions are partitioned likewise: values from
// outside are used as they are. Those without calls are for the device.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[BEFORE:.*]]:2 = call @cluster_0(%arg0)
// CHECK-NEXT: %[[LOOP:.*]]:2 = stablehlo.while(%iterArg = %[[BEFORE]]#0, %iterArg_0 = %arg0)
// CHECK-NEXT: cond {
// CHECK-NEXT: %[[TEST:.*]] = func.call @cluster_1(%iterArg)
// CHECK-NEXT: stablehlo.return %[[TEST]]
// CHECK-NEXT: } do {
// CHECK-NEXT: %[[STEP:.*]]:2 = func.call @cluster_2(%iterArg_0, %[[BEFORE]]#1, %iterArg)
// CHECK-NEXT: %[[CALL:.*]] = stablehlo.custom_call @hostcall(%[[STEP]]#0)
// CHECK-NEXT: %[[BRANCH:.*]] = "stablehlo.case"(%[[STEP]]#1) ({
// CHECK-NEXT: %[[IN:.*]] = stablehlo.custom_call @hostcall(%[[CALL]])
// CHECK-NEXT: stablehlo.return %[[IN]]
// CHECK-NEXT: }, {
// CHECK-NEXT: %[[IN:.*]] = func.call @cluster_3(%[[CALL]])
// CHECK-NEXT: stablehlo.return %[[IN]]
// CHECK-NEXT: })
// CHECK-NEXT: stablehlo.return %[[STEP]]#1, %[[BRANCH]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[LAST:.*]] = call @cluster_4(%[[LOOP]]#0)
// CHECK-NEXT: return %[[LAST]], %[[LOOP]]#1
// CHECK: func.func private @cluster_4
// CHECK-NEXT: stablehlo.constant dense<3>
// CHECK-NEXT: "stablehlo.case"
func.func @main(%arg0: tensor<f32>) -> (tensor<i32>, tensor<f32>) {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %c_0 = stablehlo.constant dense<3> : tensor<i32>
  %0 = stablehlo.sine %arg0 : tensor<f32>
  %1:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0) : tensor<i32>, tensor<f32>
  cond {
    %3 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  } do {
    %3 = stablehlo.add %iterArg_0, %0 : tensor<f32>
    %4 = stablehlo.custom_call @hostcall(%3) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %c_1 = stablehlo.constant dense<1> : tensor<i32>
    %5 = stablehlo.add %iterArg, %c_1 : tensor<i32>
    %6 = "stablehlo.case"(%5) ({
      %7 = stablehlo.custom_call @hostcall(%4) {api_version = 4 : i32, backend_config = {callback = "pkg:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
      stablehlo.return %7 : tensor<f32>
    }, {
      %7 = stablehlo.negate %4 : tensor<f32>
      stablehlo.return %7 : tensor<f32>
    }) : (tensor<i32>) -> tensor<f32>
    stablehlo.return %5, %6 : tensor<i32>, tensor<f32>
  }
  %2 = "stablehlo.case"(%1#0) ({
    stablehlo.return %c_0 : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
  return %2, %1#1 : tensor<i32>, tensor<f32>
}

// -----

// Functions that make host calls are inlined, and gone where nothing else calls them; others are called
// by clusters.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = call @cluster_0(%arg0)
// CHECK-NEXT: %1 = stablehlo.custom_call @hostcall(%0)
// CHECK-NEXT: %2 = call @cluster_1(%1)
// CHECK-NEXT: %3 = stablehlo.custom_call @hostcall(%2)
// CHECK-NEXT: return %3
// CHECK: func.func private @cluster_0
// CHECK-NEXT: call @device
// CHECK: func.func private @cluster_1
// CHECK-NEXT: call @device
// CHECK-NOT: @caller
// CHECK-NOT: func.func private @holder
// CHECK: func.func private @device
// CHECK: func.func @public
// CHECK-NEXT: call @kept
// CHECK: func.func private @kept
func.func @main(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = func.call @caller(%arg0) : (tensor<f32>) -> tensor<f32>
  %1 = func.call @holder(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
func.func private @caller(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = func.call @holder(%arg0) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @holder(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = func.call @device(%arg0) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
func.func private @device(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %arg0 : tensor<f32>
  return %0 : tensor<f32>
}
func.func @public(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = func.call @kept(%arg0) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @kept(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Small constants are written wherever they are used, large ones are passed, from where they are used
// first. A constant that goes to a call or is a result comes out of a cluster.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0:2 = call @cluster_0(%arg0)
// CHECK-NEXT: %1 = stablehlo.custom_call @hostcall(%0#0, %0#1)
// CHECK-NEXT: %2:2 = call @cluster_1(%1)
// CHECK-NEXT: %3 = stablehlo.custom_call @hostcall(%2#1)
// CHECK-NEXT: %4:2 = call @cluster_2(%3, %2#0)
// CHECK-NEXT: return %4#1, %4#0
// CHECK-LABEL: func.func private @cluster_0
// CHECK-NEXT: stablehlo.constant dense<2.000000e+00>
// CHECK-NEXT: stablehlo.constant dense<2.000000e+00>
// CHECK-NEXT: stablehlo.multiply
// CHECK-LABEL: func.func private @cluster_1
// CHECK-NEXT: stablehlo.constant dense<2.000000e+00>
// CHECK-NEXT: stablehlo.constant dense<[0
// CHECK-LABEL: func.func private @cluster_2
// CHECK-NEXT: stablehlo.constant dense<7>
// CHECK-NEXT: stablehlo.add
// CHECK-NEXT: return
func.func @main(%arg0: tensor<17xf32>) -> (tensor<17xf32>, tensor<i32>) {
  %c = stablehlo.constant dense<2.0> : tensor<17xf32>
  %c_0 = stablehlo.constant dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]> : tensor<17xf32>
  %c_1 = stablehlo.constant dense<7> : tensor<i32>
  %0 = stablehlo.multiply %arg0, %c : tensor<17xf32>
  %1 = stablehlo.custom_call @hostcall(%c, %0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<17xf32>, tensor<17xf32>) -> tensor<17xf32>
  %2 = stablehlo.multiply %1, %c : tensor<17xf32>
  %3 = stablehlo.add %2, %c_0 : tensor<17xf32>
  %4 = stablehlo.custom_call @hostcall(%3) {api_version = 4 : i32, backend_config = {callback = "pkg:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<17xf32>) -> tensor<17xf32>
  %5 = stablehlo.add %4, %c_0 : tensor<17xf32>
  return %5, %c_1 : tensor<17xf32>, tensor<i32>
}

// -----

// Without host calls all is one cluster, and a function's arguments are its results as they are. A name
// that is taken is not taken again.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = call @cluster_1(%arg0)
// CHECK-NEXT: return %arg0, %0
// CHECK: func.func private @cluster_1
// CHECK-NEXT: %0 = call @cluster_0(%arg0)
func.func @main(%arg0: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = func.call @cluster_0(%arg0) : (tensor<f32>) -> tensor<f32>
  return %arg0, %0 : tensor<f32>, tensor<f32>
}
func.func private @cluster_0(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %arg0 : tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Unused ops make no cluster, and neither does a value that is passed on.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = stablehlo.custom_call @hostcall(%arg0)
// CHECK-NEXT: return %0
// CHECK-NOT: func.func
func.func @main(%arg0: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %arg0 : tensor<f32>
  %1 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %2 = stablehlo.add %0, %1 : tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Errors are raised on the host, and looked for on the device.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = stablehlo.create_token
// CHECK-NEXT: %1 = call @cluster_0(%arg0, %arg1)
// CHECK-NEXT: %2 = stablehlo.custom_call @hostcall_raise(%1, %0) {{.*}}hostcall.to_host = array<i64: 0, 4>
// CHECK-NEXT: %3:2 = stablehlo.custom_call @hostcall(%arg1, %2)
// CHECK-NEXT: return %3#0
// CHECK-LABEL: func.func private @cluster_0
// CHECK-NOT: @hostcall_any
// CHECK: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<3x2xi64>) -> tensor<3x2xui64>
// CHECK-NEXT: %[[LIMIT:.*]] = stablehlo.convert %arg1 : (tensor<i64>) -> tensor<ui64>
// CHECK-NEXT: %[[LIMITS:.*]] = stablehlo.broadcast_in_dim %[[LIMIT]], dims = []
// CHECK-NEXT: %[[FOUND:.*]] = stablehlo.compare GE, %[[X]], %[[LIMITS]]
// CHECK: stablehlo.reduce(%[[FOUND]] init: %{{.*}}) applies stablehlo.or across dimensions = [0, 1]
// CHECK: stablehlo.compare GE, %arg0, %{{.*}} : (tensor<3x2xi64>
func.func @main(%arg0: tensor<3x2xi64>, %arg1: tensor<i64>) -> tensor<i64> {
  %0 = stablehlo.custom_call @hostcall_any(%arg0, %arg1) {api_version = 4 : i32, backend_config = {kind = "outside"}} : (tensor<3x2xi64>, tensor<i64>) -> tensor<i1>
  %1 = stablehlo.custom_call @hostcall_any(%arg0, %arg1) {api_version = 4 : i32, backend_config = {kind = "at_least"}} : (tensor<3x2xi64>, tensor<i64>) -> tensor<i1>
  %2 = stablehlo.or %0, %1 : tensor<i1>
  %3 = stablehlo.convert %2 : (tensor<i1>) -> tensor<i32>
  %4 = stablehlo.create_token : !stablehlo.token
  %5 = stablehlo.custom_call @hostcall_raise(%3, %4) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
  %6:2 = stablehlo.custom_call @hostcall(%arg1, %5) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<i64>, !stablehlo.token) -> (tensor<i64>, !stablehlo.token)
  return %6#0 : tensor<i64>
}

// -----

// Constants of which jaxlib's Python cannot see the value are passed.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0:3 = call @cluster_0()
// CHECK-NEXT: %1 = stablehlo.custom_call @hostcall(%0#0, %0#1)
// CHECK-NEXT: %2 = call @cluster_1(%0#0, %1)
// CHECK-NEXT: return %2, %0#2
func.func @main() -> (tensor<2xcomplex<f32>>, tensor<2xf32>) {
  %0 = stablehlo.constant dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f32>>
  %1 = stablehlo.constant dense_resource<blob> : tensor<2xf32>
  %2 = stablehlo.custom_call @hostcall(%0, %1) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<2xcomplex<f32>>, tensor<2xf32>) -> tensor<2xcomplex<f32>>
  %3 = stablehlo.add %0, %2 : tensor<2xcomplex<f32>>
  %4 = stablehlo.negate %1 : tensor<2xf32>
  return %3, %4 : tensor<2xcomplex<f32>>, tensor<2xf32>
}
{-#
  dialect_resources: { builtin: { blob: "0x040000000000803F00000040" } }
#-}
