// Tensors of a framework's own, for callbacks that take and return these rather than arrays.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace hostcall {

// What a framework's bindings provides. All of it wants the GIL.
struct TensorApi {
  // A new tensor that holds a copy of the data; `dtype` is XLA's. Null where there is no such
  // tensor, or where it fails; no exception is left behind.
  PyObject* (*make)(int dtype, const int64_t* dims, int rank, const void* data);

  // What a Python object holds in host memory, or null where it is no tensor or has no values. May
  // wait for the values, and lets other threads in.
  void* (*resolve)(PyObject* value);

  // Whether what `resolve` returned has that dtype, XLA's, and those dimensions.
  bool (*matches)(void* resolved, int dtype, const int64_t* dims, int rank);

  const void* (*data)(void* resolved);
  void (*release)(void* resolved);
};

// Sets the one that callbacks are given tensors by; it lives as long as the process.
void SetTensorApi(const TensorApi* api);
const TensorApi* GetTensorApi();

struct ReleaseTensor {
  void operator()(void* resolved) const { GetTensorApi()->release(resolved); }
};
using ResolvedTensor = std::unique_ptr<void, ReleaseTensor>;

}  // namespace hostcall
