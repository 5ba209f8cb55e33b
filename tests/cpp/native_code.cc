#include "native_code.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
namespace nb = nanobind;

namespace hostcall::fakes {
namespace {

// Operands: float[n]. Results: float[n].
void AddOne(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
}

// Operands: int32[]. Results: none.
int32_t Status(const int32_t* x) { return *x; }

// Operands: any, of rank 2. Results: int32[4]: 1 for each pointer that is null, and the sizes.
void Look(const void* x, int32_t* y, int64_t rows, int64_t columns) {
  y[0] = x == nullptr;
  y[1] = y == nullptr;
  y[2] = static_cast<int32_t>(rows);
  y[3] = static_cast<int32_t>(columns);
}

// A call that waits until it is let go.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool entered = false;
  bool open = false;
};

Gate gate;

void Wait() {
  std::unique_lock<std::mutex> lock(gate.mutex);
  gate.entered = true;
  gate.changed.notify_all();
  gate.changed.wait(lock, [] { return gate.open; });
  gate.entered = gate.open = false;
}

void AwaitCall() {
  nb::gil_scoped_release release;
  std::unique_lock<std::mutex> lock(gate.mutex);
  gate.changed.wait(lock, [] { return gate.entered; });
}

void LetGo() {
  std::lock_guard<std::mutex> lock(gate.mutex);
  gate.open = true;
  gate.changed.notify_all();
}

ffi::Error Scale(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y, double factor,
                 int64_t offset, bool fails, std::string_view word) {
  if (fails) return ffi::Error(ffi::ErrorCode::kDataLoss, std::string(word));
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] =
        x.typed_data()[i] * static_cast<float>(factor) + static_cast<float>(offset);
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(kScale, Scale,
                       ffi::Ffi::Bind()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Ret<ffi::Buffer<ffi::F32>>()
                           .Attr<double>("factor")
                           .Attr<int64_t>("offset")
                           .Attr<bool>("fails")
                           .Attr<std::string_view>("word"));

// Ends after it has returned, once it is let go.
ffi::Future Later() {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([promise]() mutable {
    Wait();
    promise.SetError(ffi::Error(ffi::ErrorCode::kAborted, "late"));
  }).detach();
  return future;
}

XLA_FFI_DEFINE_HANDLER(kLater, Later, ffi::Ffi::Bind());

template <typename Function>
uintptr_t AddressOf(Function* function) {
  return reinterpret_cast<uintptr_t>(function);
}

}  // namespace

void DefineNativeCode(nb::module_& m) {
  nb::dict code;
  code["add_one"] = AddressOf(&AddOne);
  code["status"] = AddressOf(&Status);
  code["look"] = AddressOf(&Look);
  code["wait"] = AddressOf(&Wait);
  code["scale"] = AddressOf(static_cast<XLA_FFI_Handler*>(kScale));
  code["later"] = AddressOf(static_cast<XLA_FFI_Handler*>(kLater));
  m.attr("native_code") = code;
  m.def("await_call", &AwaitCall, "Waits until a call of `wait` or `later` waits.");
  m.def("let_go", &LetGo, "Lets that call go on.");
}

}  // namespace hostcall::fakes
