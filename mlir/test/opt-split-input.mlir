// RUN: hostcall-opt %s --split-input-file | filecheck %s
// RUN: not hostcall-opt %s 2>&1 | filecheck %s --check-prefix=ONE

// Pieces are modules of their own; as one, the two functions have the same name.
// ONE: opt-split-input.mlir:[[# @LINE + 9]]:1: error: redefinition of symbol named 'main'

// CHECK: func.func private @main() -> tensor<f32>
// CHECK: // -----
// CHECK: func.func private @main() -> tensor<i32>
func.func private @main() -> tensor<f32>

// -----

func.func private @main() -> tensor<i32>
