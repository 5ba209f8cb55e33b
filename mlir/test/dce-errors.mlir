// RUN: hostcall-opt %s --pass-pipeline='builtin.module(hostcall-dce)' | filecheck %s
// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-dce{all=true})' 2>&1 | filecheck %s --check-prefix=OPTION
// OPTION: hostcall-opt: error: hostcall-dce: no such option: 'all=true'. Its options are: none.

// What may not be dropped: ordered calls, calls of functions without a body, and sends.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: custom_call @hostcall(%arg0)
// CHECK-NEXT: call @unseen()
// CHECK-NEXT: outfeed
// CHECK-NEXT: return
func.func @main(%arg0: !stablehlo.token) {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (!stablehlo.token) -> !stablehlo.token
  func.call @unseen() : () -> ()
  %1 = "stablehlo.outfeed"(%0) {outfeed_config = ""} : (!stablehlo.token) -> !stablehlo.token
  return
}
func.func private @unseen()
