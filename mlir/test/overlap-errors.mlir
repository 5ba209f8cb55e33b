// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-overlap)' --split-input-file --verify-diagnostics
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-overlap{all=1})' --split-input-file 2>&1 | filecheck %s
// CHECK: hostcall-opt: error: hostcall-overlap: no such option: 'all=1'. Its options are: 'keep'.

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = func.call @again(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
// expected-error@below {{hostcall-overlap: @again makes host calls and calls itself}}
func.func private @again(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<f32>) -> tensor<f32>
  %1 = func.call @again(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
