// The headers of TensorFlow that most files include, compiled once for all of them. Files include
// what they use all the same: wheels are built without this.
#pragma once

#define EIGEN_USE_THREADS  // launch.cc wants Eigen's thread pools

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
