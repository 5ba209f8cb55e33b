// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-check)' --split-input-file --verify-diagnostics
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-check)' --split-input-file 2>&1 | filecheck %s

// Without --verify-diagnostics the errors have the file and the line.
// CHECK: check-errors.mlir:[[# @LINE + 4]]:8: error: hostcall-check: api_version has to be 4

func.func @main(%x: tensor<3xf32>) {
  // expected-error@below {{api_version has to be 4 : i32}}
  %0 = stablehlo.custom_call @hostcall(%x) {backend_config = ""} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

// One mistake in each.
func.func @main(%x: tensor<3xf32>, %n: tensor<i32>) {
  // expected-error@below {{backend_config has to be a dictionary of 'callback', 'dynamic_operands'}}
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{backend_config lacks 'sub_byte_results'}}
  %1 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{backend_config has 'color', which means nothing to hostcall}}
  %2 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>, color = 1 : i64}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{callback has to be an i64 from 0 on or a string such as 'module:qualname', not -1 : i64}}
  %3 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = -1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{not 7 : i32}}
  %4 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = 7 : i32, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{not "no colon"}}
  %5 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "no colon", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{dynamic_operands has to be an array<i64> of pairs, not array<i64: 0>}}
  %6 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64: 0>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{sub_byte_results has to be an array<i64> of pairs, not 1 : i64}}
  %7 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = 1 : i64}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{dynamic_operands has 1 pairs, so that the last 1 operands before a token have to be tensor<i32>}}
  %8 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64: 0, 0>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{dynamic_results has 1 pairs}}
  %9 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64: 0, 0>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{dynamic_operands names dimension 2 of operand 0, which does not exist}}
  %10 = stablehlo.custom_call @hostcall(%x, %n) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64: 0, 2>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, tensor<i32>) -> tensor<3xf32>
  // expected-error@below {{dynamic_operands names a dimension twice}}
  %11 = stablehlo.custom_call @hostcall(%x, %n, %n) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64: 0, 0, 0, 0>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, tensor<i32>, tensor<i32>) -> tensor<3xf32>
  // expected-error@below {{sub_byte_operands names operand 1, which does not exist}}
  %12 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 1, 21>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{sub_byte_operands has element type 11; it can be '21', '22'}}
  %13 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 11>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error@below {{sub_byte_results is about result 0, which has to be of i8 or ui8, not tensor<3xf32>}}
  %14 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64: 0, 21>}} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @main(%x: tensor<3xf32>, %t: !stablehlo.token) {
  // expected-error@below {{a token has to be the last operand and the last result}}
  %0:2 = stablehlo.custom_call @hostcall(%t, %x) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token, tensor<3xf32>) -> (!stablehlo.token, tensor<3xf32>)
  return
}

// -----

func.func @main(%x: tensor<3xf32>, %t: !stablehlo.token) {
  // expected-error@below {{a call that takes a token has to return one}}
  %0 = stablehlo.custom_call @hostcall(%x, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>, !stablehlo.token) -> tensor<3xf32>
  return
}

// -----

func.func @main(%t: !stablehlo.token) {
  %0 = stablehlo.custom_call @hostcall(%t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
  // expected-error@below {{this op and another take the same token}}
  %1 = stablehlo.custom_call @hostcall(%t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
  return
}

// -----

// A loop would take the token of before the loop in each of its rounds.
func.func @main(%p: tensor<i1>, %t: !stablehlo.token) -> tensor<i1> {
  %0 = stablehlo.while(%a = %p) : tensor<i1>
  cond {
    stablehlo.return %a : tensor<i1>
  } do {
    // expected-error@below {{it has to be an operand of 'stablehlo.while' and of the terminator}}
    %1 = stablehlo.custom_call @hostcall(%t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
    stablehlo.return %a : tensor<i1>
  }
  return %0 : tensor<i1>
}

// -----

// Two branches may take it, but not one of them and an op behind.
func.func @main(%i: tensor<i32>, %t: !stablehlo.token) -> !stablehlo.token {
  %0 = "stablehlo.case"(%i) ({
    %1 = stablehlo.custom_call @hostcall(%t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
    stablehlo.return %i : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
  // expected-error@below {{take the same token}}
  return %t : !stablehlo.token
}

// -----

// Each mistake is reported, not the first alone.
func.func @main(%x: tensor<3xf32>) {
  // expected-error@below 2 {{hostcall-check: }}
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "f g", color = 1 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  // expected-error-re@below {{backend_config lacks {{'callback', .*'sub_byte_results'}}}}
  %1 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {}} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

// The example of the documentation.
func.func @main(%x: tensor<3xf32>, %t: !stablehlo.token) -> tensor<3xf32> {
  // expected-error@below {{a call that takes a token has to return one}}
  %0 = stablehlo.custom_call @hostcall(%x, %t) {api_version = 4 : i32, has_side_effect = true,
    backend_config = {callback = "np:sin",
      dynamic_operands = array<i64>, dynamic_results = array<i64>,
      sub_byte_operands = array<i64>, sub_byte_results = array<i64>}}
    : (tensor<3xf32>, !stablehlo.token) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// Operands that are not arrays have no dimensions and no elements.
func.func @main(%x: tuple<tensor<i8>>, %n: tensor<i32>) {
  // expected-error@below {{dynamic_operands names dimension 0 of operand 0, which does not exist}}
  // expected-error@below {{sub_byte_operands is about operand 0, which has to be of i8 or ui8, not tuple<tensor<i8>>}}
  %0 = stablehlo.custom_call @hostcall(%x, %n) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64: 0, 0>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 21>, sub_byte_results = array<i64>}} : (tuple<tensor<i8>>, tensor<i32>) -> tensor<3xf32>
  return
}

// -----

func.func @main(%x: tensor<2x3xf32>, %t: !stablehlo.token) {
  // expected-error@below {{operand_layouts has [0, 1], and Python functions take and return row-major arrays}}
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // expected-error@below {{result_layouts has [0, 1], and}}
  %1:2 = stablehlo.custom_call @hostcall(%x, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]} : (tensor<2x3xf32>, !stablehlo.token) -> (tensor<2x3xf32>, !stablehlo.token)
  return
}

// -----

// XLA packs these, and the runtime would read beyond their ends.
func.func @main(%x: tensor<3xi4>, %y: tensor<3xi8>) {
  // expected-error@below {{operand 0 is tensor<3xi4>, which XLA packs; the call takes and returns i8}}
  // expected-error@below {{result 0 is tensor<3xf4E2M1FN>, which XLA packs; the call takes and returns f8E4M3FN}}
  %0 = stablehlo.custom_call @hostcall(%x) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xi4>) -> tensor<3xf4E2M1FN>
  // expected-error@below {{sub_byte_operands is about operand 0, which has to be of f8E4M3FN, not tensor<3xi8>}}
  // expected-error@below {{sub_byte_results has element type 26; it can be '21', '22', '60', '61', '62'}}
  %1 = stablehlo.custom_call @hostcall(%y) {api_version = 4 : i32, backend_config = {callback = "a:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64: 0, 62>, sub_byte_results = array<i64: 0, 26>}} : (tensor<3xi8>) -> tensor<3xi8>
  return
}

// -----

// The calls for errors of values.
func.func @main(%x: tensor<3xi32>, %n: tensor<i32>, %m: tensor<i64>, %b: tensor<3xi8>, %c: tensor<i8>, %p: tensor<i1>, %t: !stablehlo.token) {
  // expected-error@below {{errors has to have an error for each tensor<i1>}}
  stablehlo.custom_call @hostcall_raise(%p, %p) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<i1>, tensor<i1>) -> ()
  // expected-error@below {{it has to take tensor<i32>s or tensor<i1>s, and may take and return a token behind them}}
  stablehlo.custom_call @hostcall_raise(%x) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<3xi32>) -> ()
  // expected-error@below {{it has to take tensor<i32>s or tensor<i1>s, and may take and return a token behind them}}
  stablehlo.custom_call @hostcall_raise(%n, %t) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<i32>, !stablehlo.token) -> ()
  // expected-error@below {{it has to take tensor<i32>s or tensor<i1>s, and may take and return a token behind them}}
  %0 = stablehlo.custom_call @hostcall_raise(%n, %n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : (tensor<i32>, tensor<i32>) -> tensor<i32>
  // expected-error@below {{it has to take tensor<i32>s or tensor<i1>s, and may take and return a token behind them}}
  stablehlo.custom_call @hostcall_raise() {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one"}} : () -> ()
  // expected-error@below {{a call that raises errors has to have has_side_effect = true}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, backend_config = {errors = "1:3:one"}} : (tensor<i32>) -> ()
  // expected-error@below {{api_version has to be 4 : i32}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 2 : i32, has_side_effect = true, backend_config = ""} : (tensor<i32>) -> ()
  // expected-error@below {{backend_config has to be {errors = ...}, a number, a code and a message of each}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = ""}} : (tensor<i32>) -> ()
  // expected-error@below {{backend_config has to be {errors = ...}, a number, a code and a message of each}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "0:3:one"}} : (tensor<i32>) -> ()
  // expected-error@below {{backend_config has to be {errors = ...}, a number, a code and a message of each}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:17:one"}} : (tensor<i32>) -> ()
  // expected-error@below {{backend_config has to be {errors = ...}, a number, a code and a message of each}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one\1Etwo"}} : (tensor<i32>) -> ()
  // expected-error@below {{backend_config has to be {errors = ...}, a number, a code and a message of each}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = 1 : i64}} : (tensor<i32>) -> ()
  // expected-error@below {{backend_config has to be {errors = ...}, a number, a code and a message of each}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {errors = "1:3:one", more = 1 : i64}} : (tensor<i32>) -> ()
  // expected-error@below {{backend_config has to be {errors = ...}, a number, a code and a message of each}}
  stablehlo.custom_call @hostcall_raise(%n) {api_version = 4 : i32, has_side_effect = true, backend_config = {}} : (tensor<i32>) -> ()
  // expected-error@below {{it has to take an array of i32 or i64 and one such number}}
  %1 = stablehlo.custom_call @hostcall_any(%x, %m) {api_version = 4 : i32, backend_config = {kind = "equal"}} : (tensor<3xi32>, tensor<i64>) -> tensor<i1>
  // expected-error@below {{it has to take an array of i32 or i64 and one such number}}
  %2 = stablehlo.custom_call @hostcall_any(%b, %c) {api_version = 4 : i32, backend_config = {kind = "equal"}} : (tensor<3xi8>, tensor<i8>) -> tensor<i1>
  // expected-error@below {{and to return a tensor<i1>}}
  %3 = stablehlo.custom_call @hostcall_any(%x, %n) {api_version = 4 : i32, backend_config = {kind = "equal"}} : (tensor<3xi32>, tensor<i32>) -> tensor<3xi1>
  // expected-error@below {{it has to take an array of i32 or i64 and one such number}}
  %4 = stablehlo.custom_call @hostcall_any() {api_version = 4 : i32, backend_config = {kind = "equal"}} : () -> tensor<i1>
  // expected-error@below {{backend_config has to be {kind = ...}, one of outside, equal, at_least}}
  %5 = stablehlo.custom_call @hostcall_any(%x, %n) {api_version = 4 : i32, backend_config = {kind = "above"}} : (tensor<3xi32>, tensor<i32>) -> tensor<i1>
  return
}
