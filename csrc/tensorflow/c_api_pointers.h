// Owning pointers to the objects of TensorFlow's C API.
#pragma once

#include <memory>

#include "tensorflow/c/tf_status.h"

namespace hostcall {

template <auto Delete>
struct DeleteBy {
  template <typename T>
  void operator()(T* object) const {
    Delete(object);
  }
};

using StatusPtr = std::unique_ptr<TF_Status, DeleteBy<&TF_DeleteStatus>>;

}  // namespace hostcall
