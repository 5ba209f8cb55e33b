// Tensors of a framework, for callbacks that take and return tensors rather than arrays.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace hostcall {

// The functions that a framework's bindings provide. All need the GIL.
struct TensorApi {
  // Makes a tensor with a copy of the data; `dtype` is XLA's. Returns null if the framework has no
  // tensor for it, or on failure, and leaves no exception behind.
  PyObject* (*make)(int dtype, const int64_t* dims, int rank, const void* data);

  // Returns an object that holds a tensor's values in host memory, or null if `value` is no tensor
  // or has no values. May wait for the values, and lets other threads in.
  void* (*resolve)(PyObject* value);

  // Returns whether the result of `resolve` has this dtype, XLA's, and these dimensions.
  bool (*matches)(void* resolved, int dtype, const int64_t* dims, int rank);

  const void* (*data)(void* resolved);
  void (*release)(void* resolved);
};

// Sets the functions that handle the tensors of callbacks; they live as long as the process.
void SetTensorApi(const TensorApi* api);
const TensorApi* GetTensorApi();

struct ReleaseTensor {
  void operator()(void* resolved) const { GetTensorApi()->release(resolved); }
};
using ResolvedTensor = std::unique_ptr<void, ReleaseTensor>;

}  // namespace hostcall
