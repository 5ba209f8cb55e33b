// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-partition)' --split-input-file --verify-diagnostics
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-partition{into=2})' --split-input-file 2>&1 | filecheck %s
// CHECK: hostcall-opt: error: hostcall-partition: no such option: 'into=2'. Its options are: 'function'.

// expected-error@below {{hostcall-partition: there is no function @main with a body}}
module {
  func.func private @main()
}

// -----

func.func @main(%x: tensor<3xf32>, %z: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.reduce"(%x, %z) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    // expected-error@below {{a host call inside of 'stablehlo.reduce', which XLA runs as a whole; host calls can be in while, case and if}}
    %1 = stablehlo.custom_call @hostcall(%a) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
    %2 = stablehlo.add %1, %b : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = func.call @again(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
// expected-error@below {{@again makes host calls and calls itself}}
func.func private @again(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %1 = func.call @again(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  // expected-error@below {{'stablehlo.composite' refers to @inside, which makes host calls; only func.call of such a function can be partitioned}}
  %0 = stablehlo.composite "my.op" %x {decomposition = @inside} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @inside(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// expected-error@below {{@main makes host calls and has several blocks}}
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  cf.br ^next
^next:
  return %0 : tensor<f32>
}
