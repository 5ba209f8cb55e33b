// The headers of XLA's compiler, compiled once for the kernels, which need them. They take most of
// the build, and with them each file takes seconds more than with precompiled.h, even if it uses
// nothing.
#pragma once

#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "xla/hlo/builder/xla_builder.h"
