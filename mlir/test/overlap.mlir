// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-overlap)' | filecheck %s
// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-overlap{keep=7,pkg:g})' | filecheck %s --check-prefix=KEEP

// CHECK-LABEL: func.func @main
// CHECK: %[[F:.*]] = stablehlo.custom_call @hostcall_start(%arg0) {{.*}}callback = "pkg:f"{{.*}}results = array<i64: 11, 1, 3>{{.*}}has_side_effect = true
// CHECK-NEXT: %[[SINE:.*]] = stablehlo.sine
// CHECK-NEXT: %[[G:.*]] = stablehlo.custom_call @hostcall_start(%[[SINE]])
// CHECK-NEXT: %[[GATE:.*]] = stablehlo.custom_call @hostcall_gate(%[[F]], %[[G]]) {api_version = 4 : i32, backend_config = {}}
// CHECK-NEXT: %[[ONE:.*]] = stablehlo.custom_call @hostcall_done(%[[F]], %[[GATE]])
// CHECK-NEXT: %[[OTHER:.*]] = stablehlo.custom_call @hostcall_done(%[[G]], %[[GATE]])
// CHECK-NEXT: stablehlo.add %[[ONE]], %[[OTHER]]
// KEEP-LABEL: func.func @main
// KEEP: @hostcall_start(%arg0)
// KEEP: @hostcall(
// KEEP: @hostcall_gate
// KEEP-NEXT: @hostcall_done
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.sine %arg0 : tensor<3xf32>
  %2 = stablehlo.custom_call @hostcall(%1) {api_version = 4 : i32, backend_config = {callback = "pkg:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %3 = stablehlo.add %0, %2 : tensor<3xf32>
  return %3 : tensor<3xf32>
}

// What depends on calls waits for those of its level.
// CHECK-LABEL: func.func @levels
// CHECK-COUNT-2: @hostcall_start
// CHECK-NEXT: %[[FIRST:.*]] = stablehlo.custom_call @hostcall_gate
// CHECK-COUNT-2: @hostcall_done
// CHECK: %[[THIRD:.*]] = stablehlo.custom_call @hostcall_start
// CHECK: %[[FOURTH:.*]] = stablehlo.custom_call @hostcall_start
// CHECK-NEXT: @hostcall_gate(%[[THIRD]], %[[FOURTH]], %[[FIRST]])
// CHECK-COUNT-2: @hostcall_done
// CHECK: return
// KEEP-LABEL: func.func @levels
func.func @levels(%arg0: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.add %0, %1 : tensor<3xf32>
  %3 = stablehlo.custom_call @hostcall(%2) {api_version = 4 : i32, backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %4 = stablehlo.custom_call @hostcall(%2) {api_version = 4 : i32, backend_config = {callback = 4 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %3, %4 : tensor<3xf32>, tensor<3xf32>
}

// A product, a call with a side effect and its token come before the results.
// CHECK-LABEL: func.func @heavy
// CHECK: %[[START:.*]] = stablehlo.custom_call @hostcall_start
// CHECK: %[[DOT:.*]] = stablehlo.dot %arg1
// CHECK: %[[EFFECT:.*]]:2 = stablehlo.custom_call @hostcall(%arg0, %arg2)
// CHECK: @hostcall_gate(%[[START]], %[[DOT]], %[[EFFECT]]#0, %[[EFFECT]]#1)
// CHECK-NEXT: @hostcall_done
// CHECK-NEXT: return
// KEEP-LABEL: func.func @heavy
// KEEP-NOT: @hostcall_start
// KEEP: return
func.func @heavy(%arg0: tensor<3xf32>, %arg1: tensor<2x2xf32>, %arg2: !stablehlo.token) -> (tensor<3xf32>, tensor<2x2xf32>, !stablehlo.token) {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 7 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.dot %arg1, %arg1 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %2:2 = stablehlo.custom_call @hostcall(%arg0, %arg2) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = 5 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
  return %0, %1, %2#1 : tensor<3xf32>, tensor<2x2xf32>, !stablehlo.token
}

// Nothing goes on beside these calls: the last is in no other op's way, and another one is not used.
// CHECK-LABEL: func.func @alone
// CHECK-COUNT-2: custom_call @hostcall(
// CHECK-NOT: custom_call
// CHECK: return
// KEEP-LABEL: func.func @alone
func.func @alone(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.sine %0 : tensor<3xf32>
  %3 = stablehlo.custom_call @hostcall(%2) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %3 : tensor<3xf32>
}

// Functions that make calls are inlined.
// CHECK-LABEL: func.func @callers
// CHECK-COUNT-2: @hostcall_start
// CHECK-NEXT: @hostcall_gate
// CHECK-COUNT-2: @hostcall_done
// CHECK-NOT: @callee
// KEEP-LABEL: func.func @callers
func.func @callers(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = func.call @callee(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = func.call @callee(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.add %0, %1 : tensor<3xf32>
  return %2 : tensor<3xf32>
}
func.func private @callee(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// In a loop the calls that another iteration would make with other values; none in the condition.
// CHECK-LABEL: func.func @loop
// CHECK: cond
// CHECK-COUNT-2: custom_call @hostcall(
// CHECK: do
// CHECK-COUNT-2: @hostcall_start(%iterArg
// CHECK: custom_call @hostcall(%iterArg
// CHECK: @hostcall_gate
// CHECK-COUNT-2: @hostcall_done
// CHECK: stablehlo.return
// KEEP-LABEL: func.func @loop
func.func @loop(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
  %0:2 = stablehlo.while(%iterArg = %arg0, %iterArg_0 = %arg1) : tensor<f32>, tensor<f32>
  cond {
    %1 = stablehlo.custom_call @hostcall(%iterArg) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %2 = stablehlo.custom_call @hostcall(%iterArg) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %3 = stablehlo.compare LT, %1, %2 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  } do {
    %1 = stablehlo.custom_call @hostcall(%iterArg) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %2 = stablehlo.custom_call @hostcall(%iterArg) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %3 = stablehlo.custom_call @hostcall(%iterArg_0) {api_version = 4 : i32, backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %4 = stablehlo.add %1, %2 : tensor<f32>
    %5 = stablehlo.add %4, %3 : tensor<f32>
    stablehlo.return %5, %iterArg_0 : tensor<f32>, tensor<f32>
  }
  return %0#0 : tensor<f32>
}

// The calls of a branch; results in a tuple, as TensorFlow has them.
// CHECK-LABEL: func.func @branches
// CHECK: "stablehlo.case"
// CHECK: @hostcall_start{{.*}}results = array<i64: 11, 0, 4, 0>
// CHECK: @hostcall_start
// CHECK: @hostcall_done{{.*}} -> tuple<tensor<f32>, tensor<i32>>
// KEEP-LABEL: func.func @branches
func.func @branches(%arg0: tensor<i32>, %arg1: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.case"(%arg0) ({
    %1 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tuple<tensor<f32>, tensor<i32>>
    %2 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %3 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<f32>, tensor<i32>>) -> tensor<f32>
    %4 = stablehlo.add %2, %3 : tensor<f32>
    stablehlo.return %4 : tensor<f32>
  }, {
    stablehlo.return %arg1 : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// As JAX writes calls, with layouts and shardings.
// CHECK-LABEL: func.func @of_jax
// CHECK: @hostcall_start(%arg0) {backend_config = "", has_side_effect = true, mhlo.backend_config = {{{.*}}results = {{.*}}}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<> : tensor<0xindex>]}
// CHECK: @hostcall_gate{{.*}} {backend_config = "", mhlo.backend_config = {}}
// CHECK: @hostcall_done{{.*}} operand_layouts = [dense<> : tensor<0xindex>, dense<> : tensor<0xindex>], result_layouts = [dense<0> : tensor<1xindex>]
// KEEP-LABEL: func.func @of_jax
func.func @of_jax(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {backend_config = "", mhlo.backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], mhlo.sharding = "{replicated}"} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%arg0) {backend_config = "", mhlo.backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], mhlo.sharding = "{replicated}"} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.add %0, %1 : tensor<3xf32>
  return %2 : tensor<3xf32>
}
