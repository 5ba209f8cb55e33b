// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-from-jax{callbacks=1=9},hostcall-check)' --split-input-file | filecheck %s

// Programs as JAX 0.10.2 lowers them.

// jax.pure_callback stays pure.
// CHECK-LABEL: func.func public @main
// CHECK: %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 0 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> tensor<3xf32>
// CHECK: stablehlo.multiply %0
module @jit_pure attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> tensor<3xf32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<3xf32>
    return %2 : tensor<3xf32>
  }
}

// -----

// io_callback, ordered and not: the token goes to the end, with its layout, and index 1 is mapped to 9.
// CHECK-LABEL: func.func public @main
// CHECK: %0:2 = stablehlo.custom_call @hostcall(%arg1, %arg0) {{.*}}callback = 0 : i64{{.*}}has_side_effect = true, operand_layouts = [dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>], result_layouts = [dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>]{{.*}} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
// CHECK: %1 = stablehlo.custom_call @hostcall(%arg1) {{.*}}callback = 9 : i64{{.*}}has_side_effect = true, {{.*}} : (tensor<3xf32>) -> tensor<3xf32>
// CHECK: stablehlo.add %0#0, %1
// CHECK: return %0#1, %2
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: !stablehlo.token {jax.token = true}, %arg1: tensor<3xf32>) -> (!stablehlo.token {jax.token = true}, tensor<3xf32> {jax.result_info = "result"}) {
    %0:2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0, %arg1) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<> : tensor<0xindex>, dense<0> : tensor<1xindex>], result_layouts = [dense<> : tensor<0xindex>, dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>, <@maximal_mesh_0, []>]>} : (!stablehlo.token, tensor<3xf32>) -> (!stablehlo.token, tensor<3xf32>)
    %1 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg1) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 1 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> tensor<3xf32>
    %2 = stablehlo.add %0#1, %1 : tensor<3xf32>
    return %0#0, %2 : !stablehlo.token, tensor<3xf32>
  }
}

// -----

// jax.debug.callback and an ordered jax.debug.print: no results, and a token alone.
// CHECK-LABEL: func.func public @main
// CHECK: stablehlo.custom_call @hostcall(%arg1) {{.*}}callback = 0 : i64{{.*}}has_side_effect = true{{.*}} : (tensor<3xf32>) -> ()
// CHECK: %0 = stablehlo.custom_call @hostcall(%arg1, %arg0) {{.*}}callback = 9 : i64{{.*}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
// CHECK: return %0, %arg1
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: !stablehlo.token {jax.token = true}, %arg1: tensor<3xf32>) -> (!stablehlo.token {jax.token = true}, tensor<3xf32> {jax.result_info = "result"}) {
    stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg1) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> ()
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0, %arg1) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 1 : ui64}, operand_layouts = [dense<> : tensor<0xindex>, dense<0> : tensor<1xindex>], result_layouts = [dense<> : tensor<0xindex>]} : (!stablehlo.token, tensor<3xf32>) -> !stablehlo.token
    return %0, %arg1 : !stablehlo.token, tensor<3xf32>
  }
}

// -----

// int4 goes in and out as int8, and the pairs say what the function sees.
// CHECK-LABEL: func.func public @main
// CHECK: %0 = stablehlo.convert %arg0 : (tensor<3xi4>) -> tensor<3xi8>
// CHECK: %1 = stablehlo.custom_call @hostcall(%0) {{.*}}sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64: 0, 21>}{{.*}} : (tensor<3xi8>) -> tensor<3xi8>
// CHECK: %2 = stablehlo.convert %1 : (tensor<3xi8>) -> tensor<3xi4>
// CHECK: return %2
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: tensor<3xi4>) -> (tensor<3xi4> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xi4>) -> tensor<3xi4>
    return %0 : tensor<3xi4>
  }
}

// -----

// Arrays without elements, and layouts of two dimensions.
// CHECK-LABEL: func.func public @main
// CHECK: custom_call @hostcall(%arg0) {{.*}}operand_layouts = [dense<[1, 0]> : tensor<2xindex>]{{.*}} : (tensor<0x3xf32>) -> tensor<0x3xf32>
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: tensor<0x3xf32>) -> (tensor<0x3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<0x3xf32>) -> tensor<0x3xf32>
    return %0 : tensor<0x3xf32>
  }
}

// -----

// Booleans are bytes, and go as they are.
// CHECK-LABEL: func.func public @main
// CHECK: custom_call @hostcall(%arg0) {{.*}}sub_byte_operands = array<i64>, sub_byte_results = array<i64>}{{.*}} : (tensor<3xi1>) -> tensor<3xi1>
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: tensor<3xi1>) -> (tensor<3xi1> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xi1>) -> tensor<3xi1>
    return %0 : tensor<3xi1>
  }
}

// -----

// Several results.
// CHECK-LABEL: func.func public @main
// CHECK: %0:2 = stablehlo.custom_call @hostcall(%arg0) {{.*}} : (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32> {jax.result_info = "result[0]"}, tensor<3xf32> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>, <@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
    return %0#0, %0#1 : tensor<3xf32>, tensor<3xf32>
  }
}

// -----

// An ordered call in a loop, in a function of its own.
// CHECK-LABEL: func.func public @main
// CHECK: func.call @closed_call
// CHECK-LABEL: func.func private @closed_call
// CHECK: %0:2 = stablehlo.custom_call @hostcall(%arg1, %arg0) {{.*}}has_side_effect = true
// CHECK: return %0#1, %0#0
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: !stablehlo.token {jax.token = true}, %arg1: tensor<3xf32>) -> (!stablehlo.token {jax.token = true}, tensor<3xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %arg0, %iterArg_0 = %c, %iterArg_1 = %arg1) : !stablehlo.token, tensor<i32>, tensor<3xf32>
    cond {
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg_0, %c_2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1:2 = func.call @closed_call(%iterArg, %iterArg_1) : (!stablehlo.token, tensor<3xf32>) -> (!stablehlo.token, tensor<3xf32>)
      %c_2 = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %iterArg_0, %c_2 : tensor<i32>
      stablehlo.return %1#0, %2, %1#1 : !stablehlo.token, tensor<i32>, tensor<3xf32>
    }
    return %0#0, %0#2 : !stablehlo.token, tensor<3xf32>
  }
  func.func private @closed_call(%arg0: !stablehlo.token {jax.token = true}, %arg1: tensor<3xf32>) -> (!stablehlo.token {jax.token = true}, tensor<3xf32>) {
    %0:2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0, %arg1) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<> : tensor<0xindex>, dense<0> : tensor<1xindex>], result_layouts = [dense<> : tensor<0xindex>, dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>, <@maximal_mesh_0, []>]>} : (!stablehlo.token, tensor<3xf32>) -> (!stablehlo.token, tensor<3xf32>)
    return %0#0, %0#1 : !stablehlo.token, tensor<3xf32>
  }
}

// -----

// In a branch, of a value from outside.
// CHECK-LABEL: func.func public @main
// CHECK: "stablehlo.case"
// CHECK: %4 = stablehlo.custom_call @hostcall(%arg0)
// CHECK-NEXT: stablehlo.return %4
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32> {jax.result_info = "result"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.compare GT, %0, %cst_0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.convert %1 : (tensor<i1>) -> tensor<i32>
    %3 = "stablehlo.case"(%2) ({
      stablehlo.return %arg0 : tensor<3xf32>
    }, {
      %4 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> tensor<3xf32>
      stablehlo.return %4 : tensor<3xf32>
    }) : (tensor<i32>) -> tensor<3xf32>
    return %3 : tensor<3xf32>
  }
}

// -----

// Numbers of two bits, and floats of four.
// CHECK-LABEL: func.func @main
// CHECK: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<3xi2>) -> tensor<3xi8>
// CHECK: %[[Y:.*]] = stablehlo.custom_call @hostcall(%[[X]]) {{.*}}sub_byte_operands = array<i64: 0, 60>, sub_byte_results = array<i64: 0, 62>}{{.*}} : (tensor<3xi8>) -> tensor<3xf8E4M3FN>
// CHECK: stablehlo.convert %[[Y]] : (tensor<3xf8E4M3FN>) -> tensor<3xf4E2M1FN>
func.func @main(%arg0: tensor<3xi2>) -> tensor<3xf4E2M1FN> {
  %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {backend_config = "", mhlo.backend_config = {index = 0 : ui64}} : (tensor<3xi2>) -> tensor<3xf4E2M1FN>
  return %0 : tensor<3xf4E2M1FN>
}

// -----

// uint4, and the call of jax.debug.callback(partitioned=True).
// CHECK-LABEL: func.func @main
// CHECK: %0 = stablehlo.convert %arg0 : (tensor<3xui4>) -> tensor<3xui8>
// CHECK: stablehlo.custom_call @hostcall(%0) {{.*}}sub_byte_operands = array<i64: 0, 22>, sub_byte_results = array<i64>}{{.*}} : (tensor<3xui8>) -> ()
func.func @main(%arg0: tensor<3xui4>) {
  stablehlo.custom_call @xla_ffi_partitioned_python_cpu_callback(%arg0) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}} : (tensor<3xui4>) -> ()
  return
}

// -----

// The example of the documentation.
// CHECK-LABEL: func.func @main
// CHECK: %0:2 = stablehlo.custom_call @hostcall(%arg1, %arg0)
// CHECK: return %0#1, %0#0
func.func @main(%arg0: !stablehlo.token, %arg1: tensor<3xf32>) -> (!stablehlo.token, tensor<3xf32>) {
  %0:2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0, %arg1) {backend_config = "", has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}} : (!stablehlo.token, tensor<3xf32>) -> (!stablehlo.token, tensor<3xf32>)
  return %0#0, %0#1 : !stablehlo.token, tensor<3xf32>
}

// -----

// What is not a call of JAX's stays as it is.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.custom_call @other(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
func.func @main(%arg0: tensor<3xf32>) {
  %0 = stablehlo.custom_call @other(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

// Calls of hostcall.jax, pure, ordered, and of int4: their attributes go where hostcall has them.
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %0 = stablehlo.custom_call @hostcall(%arg1) {api_version = 4 : i32, backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts
// CHECK-NOT: mhlo.backend_config
// CHECK: %1:2 = stablehlo.custom_call @hostcall(%arg1, %arg0) {{.*}}callback = 2 : i64{{.*}}has_side_effect = true, operand_layouts
// CHECK: custom_call @hostcall(%4) {{.*}}sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64: 0, 21>}
module @jit_prog attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = [], device_ids = dense<0> : tensor<1xi64>}}
  func.func public @main(%arg0: !stablehlo.token {jax.token = true}, %arg1: tensor<3xf32>) -> (!stablehlo.token {jax.token = true}, tensor<3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @hostcall(%arg1) {backend_config = "", mhlo.backend_config = {callback = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> tensor<3xf32>
    %1:2 = stablehlo.custom_call @hostcall(%arg1, %arg0) {backend_config = "", has_side_effect = true, mhlo.backend_config = {callback = 2 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>], result_layouts = [dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>, <@maximal_mesh_0, []>]>} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
    %2 = stablehlo.custom_call @hostcall(%0) {backend_config = "", has_side_effect = true, mhlo.backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xf32>) -> tensor<3xf32>
    %3 = stablehlo.convert %arg1 : (tensor<3xf32>) -> tensor<3xi4>
    %4 = stablehlo.convert %3 : (tensor<3xi4>) -> tensor<3xi8>
    %5 = stablehlo.custom_call @hostcall(%4) {backend_config = "", mhlo.backend_config = {callback = 4 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64: 0, 21>}, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<3xi8>) -> tensor<3xi8>
    %6 = stablehlo.convert %5 : (tensor<3xi8>) -> tensor<3xi4>
    %7 = stablehlo.add %0, %1#0 : tensor<3xf32>
    %8 = stablehlo.add %7, %2 : tensor<3xf32>
    %9 = stablehlo.convert %6 : (tensor<3xi4>) -> tensor<3xf32>
    %10 = stablehlo.add %8, %9 : tensor<3xf32>
    return %1#1, %10 : !stablehlo.token, tensor<3xf32>
  }
}
