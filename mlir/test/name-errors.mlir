// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{names=3=solver#2})' --verify-diagnostics
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{names=x=a:f})' 2>&1 | filecheck %s --check-prefix=NUMBER
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{names=3})' 2>&1 | filecheck %s --check-prefix=FORM
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{names=3=no#thing})' 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{names=3=a:f,3=a:g})' 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{file=%t.missing})' 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: echo '[]' > %t.json
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{file=%t.json})' 2>&1 | filecheck %s --check-prefix=OBJECT
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-name{numbers=3})' 2>&1 | filecheck %s --check-prefix=OPTION

// NUMBER: hostcall-opt: error: hostcall-name: 'x' is not a callback id
// FORM: hostcall-opt: error: hostcall-name: '3' of option 'names' is not of the form KEY=VALUE
// NAME: hostcall-opt: error: hostcall-name: 'no#thing' is not a name: module:qualname is one, or a word, with or without #2 behind it
// TWICE: hostcall-opt: error: hostcall-name: '3' is mapped to 'a:f' and to 'a:g'
// MISSING: hostcall-opt: error: hostcall-name: cannot read the JSON file
// OBJECT: does not hold a JSON object
// OPTION: hostcall-opt: error: hostcall-name: no such option: 'numbers=3'. Its options are: 'names', 'file'.

func.func @main(%x: tensor<3xf32>) {
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{hostcall-name: no name is given for callback 4; add it to 'names'}}
  %1 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = 4 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{no name is given for callback 5}}
  %2 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = 5 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return
}
