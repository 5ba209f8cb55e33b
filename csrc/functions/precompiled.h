// The headers that cost most of the build, compiled once for all files that include TensorFlow.
// Files include what they use all the same: wheels are built without this.
#pragma once

#define EIGEN_USE_THREADS  // run_devices.cc wants Eigen's thread pools

#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "xla/hlo/builder/xla_builder.h"
