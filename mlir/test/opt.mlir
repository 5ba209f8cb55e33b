// Standard input, an output file, and pipelines with and without builtin.module.
// RUN: hostcall-opt < %s | filecheck %s
// RUN: hostcall-opt - -o %t < %s && filecheck %s < %t
// RUN: hostcall-opt %s --pass-pipeline='canonicalize, hostcall-dce ,func.func(cse)' | filecheck %s --check-prefix=FOLDED
// RUN: hostcall-opt %s --pass-pipeline='builtin.module(func.func(cse),canonicalize)' | filecheck %s --check-prefix=FOLDED
// RUN: hostcall-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: hostcall-opt %s --mlir-print-debuginfo | filecheck %s --check-prefix=DEBUG
// RUN: hostcall-opt --help | filecheck %s --check-prefix=HELP

// CHECK: func.func @main
// CHECK-NEXT: stablehlo.constant
// FOLDED: func.func @main
// FOLDED-NEXT: return
// GENERIC: "func.func"()
// DEBUG: loc(#loc
// HELP: Passes:
// HELP: hostcall-name
// HELP-NEXT: names
// HELP-NEXT: file
func.func @main() {
  %0 = stablehlo.constant dense<1.0> : tensor<f32>
  return
}
