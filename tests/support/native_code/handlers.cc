// Handlers of XLA's typed FFI for the tests of hostcall.native.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

using Floats = ffi::Buffer<ffi::F32>;

static ffi::Error Scale(Floats x, ffi::ResultBuffer<ffi::F32> y, float factor, int64_t offset,
                        bool negative, std::string_view word, double half) {
  if (word != "grüße" || half != 0.5) return ffi::Error::InvalidArgument("other attributes");
  for (size_t i = 0; i < x.element_count(); ++i) {
    const float scaled = x.typed_data()[i] * factor + static_cast<float>(offset);
    y->typed_data()[i] = negative ? -scaled : scaled;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(scale, Scale,
                              ffi::Ffi::Bind()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Attr<float>("factor")
                                  .Attr<int64_t>("offset")
                                  .Attr<bool>("negative")
                                  .Attr<std::string_view>("word")
                                  .Attr<double>("half"));

static ffi::Error SumAndCount(Floats x, ffi::ResultBuffer<ffi::F32> sum,
                              ffi::ResultBuffer<ffi::S64> count) {
  *sum->typed_data() = 0.0f;
  for (size_t i = 0; i < x.element_count(); ++i) *sum->typed_data() += x.typed_data()[i];
  *count->typed_data() = static_cast<int64_t>(x.element_count());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    sum_and_count, SumAndCount,
    ffi::Ffi::Bind().Arg<Floats>().Ret<Floats>().Ret<ffi::Buffer<ffi::S64>>());

static ffi::Error Fail(ffi::AnyBuffer code, ffi::Result<ffi::AnyBuffer>) {
  const auto errc = static_cast<ffi::ErrorCode>(*code.typed_data<int32_t>());
  if (errc == ffi::ErrorCode::kOk) return ffi::Error::Success();
  return ffi::Error(errc, "no signal from sensor " + std::to_string(static_cast<int>(errc)));
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    fail, Fail, ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());

// Ends when it has returned. TensorFlow 2.19 has dropped the frame by then, and the buffers with it.
static ffi::Future Later(Floats x, ffi::ResultBuffer<ffi::F32> y) {
  const float* from = x.typed_data();
  float* to = y->typed_data();
  const size_t count = x.element_count();
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([promise, from, to, count]() mutable {
    for (size_t i = 0; i < count; ++i) to[i] = from[i] + 1;
    if (count > 0 && from[0] < 0) {
      promise.SetError(ffi::Error::InvalidArgument("negative, and late"));
    } else {
      promise.SetAvailable();
    }
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(later, Later, ffi::Ffi::Bind().Arg<Floats>().Ret<Floats>());

// Asks for what only a run of XLA's has.
static ffi::Error OnPool(ffi::ThreadPool pool, ffi::ResultBuffer<ffi::S64> threads) {
  *threads->typed_data() = pool.num_threads();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    on_pool, OnPool, ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ret<ffi::Buffer<ffi::S64>>());

struct State {
  static ffi::TypeId id;
};
ffi::TypeId State::id = {1234};

static ffi::ErrorOr<std::unique_ptr<State>> Instantiate() { return std::make_unique<State>(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(instantiate, Instantiate, ffi::Ffi::BindInstantiate());

static ffi::Error UseState(State*, Floats, ffi::ResultBuffer<ffi::F32>) {
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    use_state, UseState, ffi::Ffi::Bind().Ctx<ffi::State<State>>().Arg<Floats>().Ret<Floats>());
