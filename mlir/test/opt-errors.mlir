// RUN: not hostcall-opt %s --pass-pipeline='builtin.module(hostcall-nothing)' 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not hostcall-opt %s --pass-pipeline='hostcall-name{names=1=a:f' 2>&1 | filecheck %s --check-prefix=BRACKET
// RUN: not hostcall-opt %s --verify-diagnostics 2>&1 | filecheck %s --check-prefix=EXPECTED
// RUN: not hostcall-opt %t.missing 2>&1 | filecheck %s --check-prefix=FILE
// RUN: not hostcall-opt %s %s 2>&1 | filecheck %s --check-prefix=USAGE
// RUN: echo '?' > %t.txt
// RUN: not hostcall-opt %t.txt 2>&1 | filecheck %s --check-prefix=PARSE
// RUN: not hostcall-opt %t.txt --split-input-file --verify-diagnostics 2>&1 | filecheck %s --check-prefix=UNEXPECTED

// PASS: hostcall-opt: error: 'hostcall-nothing' in the pipeline: neither a pass of hostcall's (hostcall-from-jax,
// PASS-SAME: nor one that MLIR knows
// BRACKET: a bracket or a quote is not closed
// EXPECTED: opt-errors.mlir:[[# @LINE + 7]]: error: expected error 'something else' on line [[# @LINE + 8]] was not produced
// FILE: No such file or directory
// USAGE: Usage: hostcall-opt
// PARSE: .txt:1:1: error: expected operation name in quotes
// PARSE-NOT: Traceback
// UNEXPECTED: error: expected operation name in quotes (not expected)

// expected-error@below {{something else}}
func.func private @main()
