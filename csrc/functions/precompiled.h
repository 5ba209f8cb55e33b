// The headers of TensorFlow that most files include, compiled once for all of them. Files include
// what they use all the same: wheels are built without this.
#pragma once

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
