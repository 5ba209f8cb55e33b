// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-check)' | filecheck %s

// Calls as they should be: a number or a name, ordered ones, bounded sizes, int4, TensorFlow's tuples.

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.custom_call @hostcall(%arg0)
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = 7 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @ordered
func.func @ordered(%x: tensor<3xf32>, %t: !stablehlo.token) -> !stablehlo.token {
  %0:2 = stablehlo.custom_call @hostcall(%x, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a.b:C.f.<locals>.<lambda>", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
  %1 = stablehlo.custom_call @hostcall(%0#1) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
  return %1 : !stablehlo.token
}

// CHECK-LABEL: func.func @sizes
func.func @sizes(%x: tensor<3x4xi8>, %n: tensor<i32>) -> tensor<2xi8> {
  %0 = stablehlo.custom_call @hostcall(%x, %n) {api_version = 4 : i32, backend_config = {callback = 0 : i64, dynamic_operands = array<i64: 0, 1>, dynamic_results = array<i64: 0, 0>, sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64: 0, 21>}} : (tensor<3x4xi8>, tensor<i32>) -> tuple<tensor<2xi8>, tensor<i32>>
  %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<2xi8>, tensor<i32>>) -> tensor<2xi8>
  return %1 : tensor<2xi8>
}

// A branch runs once, so that each of them may take the token from outside.
// CHECK-LABEL: func.func @branches
func.func @branches(%i: tensor<i32>, %t: !stablehlo.token) -> !stablehlo.token {
  %0 = "stablehlo.case"(%i) ({
    %1 = stablehlo.custom_call @hostcall(%t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
    stablehlo.return %1 : !stablehlo.token
  }, {
    stablehlo.return %t : !stablehlo.token
  }) : (tensor<i32>) -> !stablehlo.token
  return %0 : !stablehlo.token
}

// CHECK-LABEL: func.func @less_than_a_byte
// CHECK: sub_byte_operands = array<i64: 0, 60, 1, 62>, sub_byte_results = array<i64: 0, 61>
func.func @less_than_a_byte(%x: tensor<3xi8>, %y: tensor<3xf8E4M3FN>) -> tensor<3xui8> {
  %0 = stablehlo.custom_call @hostcall(%x, %y) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 60, 1, 62>, sub_byte_results = array<i64: 0, 61>}} : (tensor<3xi8>, tensor<3xf8E4M3FN>) -> tensor<3xui8>
  return %0 : tensor<3xui8>
}

// CHECK-LABEL: func.func @errors_of_values
func.func @errors_of_values(%x: tensor<3x2xi64>, %limit: tensor<i64>, %n: tensor<i32>) -> tensor<i1> {
  %0 = stablehlo.custom_call @hostcall_any(%x, %limit) {api_version = 4 : i32, backend_config = {kind = "outside"}} : (tensor<3x2xi64>, tensor<i64>) -> tensor<i1>
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one\0A\1E2:11:two: 2"}} : (tensor<i32>) -> ()
  %t = stablehlo.create_token : !stablehlo.token
  %1 = stablehlo.custom_call @hostcall_raise(%n, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<i32>, !stablehlo.token) -> tuple<!stablehlo.token>
  stablehlo.custom_call @hostcall_raise(%0, %n, %0) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "2:3:two\1E3:3:three\1E1:3:one"}} : (tensor<i1>, tensor<i32>, tensor<i1>) -> ()
  return %0 : tensor<i1>
}

// What comes last may take a token that another op takes, if its operand comes from that one.
// CHECK-LABEL: func.func @an_error_at_the_end
func.func @an_error_at_the_end(%x: tensor<i32>, %t: !stablehlo.token) {
  %0:2 = stablehlo.custom_call @hostcall(%x, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<i32>, !stablehlo.token) -> (tensor<i32>, !stablehlo.token)
  %1 = stablehlo.custom_call @hostcall_raise(%0#0, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
  return
}

// Pure calls wait for a token that another op takes.
// CHECK-LABEL: func.func @pure_calls_that_wait
func.func @pure_calls_that_wait(%x: tensor<3xf32>, %n: tensor<i32>) -> tensor<3xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %0 = stablehlo.custom_call @hostcall_raise(%n, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
  %1:2 = stablehlo.custom_call @hostcall(%x, %0) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
  %2:2 = stablehlo.custom_call @hostcall(%1#0, %0) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
  %3 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
  return %2#0 : tensor<3xf32>
}

// StableHLO's reader of portable artifacts leaves tensors in the place of arrays.
// CHECK-LABEL: func.func @of_an_artifact
// CHECK: dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64>
func.func @of_an_artifact(%x: tensor<3xi8>) -> tensor<3xi8> {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = dense<> : tensor<0xi64>, dynamic_results = dense<> : tensor<0xi64>, sub_byte_operands = dense<[0, 21]> : tensor<2xi64>, sub_byte_results = dense<> : tensor<0xi64>}} : (tensor<3xi8>) -> tensor<3xi8>
  return %0 : tensor<3xi8>
}
