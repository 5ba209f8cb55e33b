// The functions that the runtime and a framework's bindings have for each other: two extension
// modules, which pass the tables in capsules. All tables live as long as the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "xla/ffi/api/c_api.h"

typedef struct _object PyObject;  // as in Python.h, which not all users have

namespace hostcall {

// Tensors, for callbacks that take and return these rather than arrays. All need the GIL.
struct TensorApi {
  // Makes a tensor with a copy of the data; `dtype` is XLA's. Returns null if the framework has no
  // tensor for it, or on failure, and leaves no exception behind.
  PyObject* (*make)(int dtype, const int64_t* dims, int rank, const void* data);

  // Returns an object that holds a tensor's values in host memory, or null if `value` is not a
  // tensor or has no values. May wait for the values, and lets other threads in.
  void* (*resolve)(PyObject* value);

  // Returns whether the result of `resolve` has this dtype, XLA's, and these dimensions.
  bool (*matches)(void* resolved, int dtype, const int64_t* dims, int rank);

  const void* (*data)(void* resolved);
  void (*release)(void* resolved);
};

// Memory of compiled programs that arrays may lie in: the views that callbacks borrow. A callback,
// or an object that it made of a view, may keep the view: so the memory must not be freed.
struct BufferProviderApi {
  // Keeps memory until `release` gets the returned hold. Returns null if it cannot.
  void* (*hold)(const void* data, size_t size);
  void (*release)(void* hold);
};

// A profiler; `begin` returns the argument of `end`, or 0. It need not be told of calls while
// `level` is less than 1.
struct ProfilerApi {
  const std::atomic<int>* level;
  int64_t (*begin)(const std::string& name);
  void (*end)(int64_t begun);
};

}  // namespace hostcall

namespace hostcall::turns {

// The run of a call. Each run has its own number, so that a call which runs another program does
// not wait for itself.
struct Run {
  static constexpr int64_t kUnknown = -1;  // XLA does not tell it; no call waits in it

  int64_t number = kUnknown;
  bool takes_turns = true;  // false if tokens order all calls that must not overlap
};

// A finder of runs for an XLA that gives all runs one number.
struct RunFinder {
  const XLA_FFI_Api* xla;  // finds the runs of its calls
  Run (*find)(XLA_FFI_ExecutionContext* context);
};

}  // namespace hostcall::turns

namespace hostcall {

// The functions of a framework's bindings. Null ones are missing: callbacks get arrays, and copies.
struct HostApi {
  TensorApi tensors = {};
  BufferProviderApi buffers = {};
  ProfilerApi profiler = {};
  turns::RunFinder runs = {};
};

inline constexpr HostApi kNoHost{};
inline std::atomic<const HostApi*> host_api{&kNoHost};

inline const HostApi& Host() { return *host_api.load(std::memory_order_acquire); }

// Sets the functions, and returns those before.
inline const HostApi* Install(const HostApi* api) { return host_api.exchange(api); }

// The functions of the runtime.
struct RuntimeApi {
  // Takes a status code and a text.
  using GiveUp = std::function<void(int, const std::string&)>;

  void (*run_on_pool)(std::function<void()> task);  // pool.h

  // Tell of each run of a program with early calls: see early_calls.h.
  int64_t (*begin_run)();
  void (*end_run)(int64_t run);

  // Begins a wait of a Python thread that Ctrl-C gives up; returns the number that ends it.
  // `give_up` runs on another thread, at most once, without the GIL.
  int64_t (*begin_wait)(unsigned long thread, GiveUp give_up);
  void (*end_wait)(int64_t number);

  // Returns recycled memory of arbitrary values (array_memory.h), for large values such as tensors;
  // null for sizes that are not worth it, and if memory is exhausted. No GIL is needed.
  void* (*take_memory)(size_t size);
  void (*give_memory)(void* data);
};

}  // namespace hostcall
