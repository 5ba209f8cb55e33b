// The headers of XLA's builder and kernels, compiled once for our kernels, which need them. With
// them each file takes longer than with precompiled.h, even if it uses nothing.
#pragma once

#include "hostcall_xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/xla_builder.h"
