#include "handler.h"

#include <Python.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "call.h"
#include "failure.h"
#include "gil.h"
#include "pool.h"
#include "registry.h"
#include "stats.h"

namespace ffi = xla::ffi;

namespace hostcall {

// What a call comes to: a future where it goes on elsewhere, else an error, if there is one.
struct Result {
  std::optional<ffi::Future> later;
  std::optional<ffi::Error> error;
};

namespace {

using Pairs = ffi::Span<const int64_t>;

Buffer ToBuffer(const ffi::AnyBuffer& buffer) {
  return Buffer{buffer.element_type(),
                buffer.element_type(),
                buffer.untyped_data(),
                buffer.dimensions(),
                {},
                {}};
}

// A callback without side effects that took longer than this leaves XLA's thread the next time, so
// that other calls can run meanwhile. Changing threads costs about a tenth of it.
constexpr std::chrono::microseconds kWorthAnotherThread(200);

// A thread that Python knows came in from Python and has nothing else to do. Any other is one of
// XLA's few: if callbacks held them all, a callback that itself runs a program would wait for ever.
bool RunsHere(const HostCall& call) {
  return PyGILState_GetThisThreadState() != nullptr &&
         (call.ordered || call.callback == nullptr ||
          call.callback->duration() < kWorthAnotherThread);
}

bool HasToken(const ffi::RemainingArgs& args) {
  return args.size() > 0 &&
         args.get<ffi::AnyBuffer>(args.size() - 1).value().element_type() == ffi::DataType::TOKEN;
}

// The buffers of one side of the frame, without the token.
template <typename Remaining, typename Get>
std::vector<Buffer> CopyBuffers(const Remaining& remaining, Get get) {
  std::vector<Buffer> buffers;
  buffers.reserve(remaining.size());
  for (size_t i = 0; i < remaining.size(); ++i) {
    Buffer buffer = ToBuffer(get(remaining, i));
    if (buffer.dtype != ffi::DataType::TOKEN) buffers.push_back(std::move(buffer));
  }
  return buffers;
}

Failure Malformed() { return Failure::InvalidArgument("hostcall: malformed custom call."); }

Failure WrongSize(int64_t size, int64_t bound) {
  return Failure(ffi::ErrorCode::kInternal,
                 "hostcall: an operand of a host callback has size " + std::to_string(size) +
                     " in a dimension that is bounded by " + std::to_string(bound) +
                     ". XLA computed it wrongly: some of its ops do so for results of bounded "
                     "size. Move the op out of the compiled function, or pad by hand.");
}

// Takes the true sizes off the end of `buffers`; `assign` puts each where its pair says.
template <typename Assign>
void TakeSizes(std::vector<Buffer>& buffers, Pairs pairs, Assign assign) {
  const size_t sizes = pairs.size() / 2;
  if (pairs.size() % 2 != 0 || sizes > buffers.size()) throw Malformed();
  const size_t count = buffers.size() - sizes;
  for (size_t i = 0; i < sizes; ++i) {
    const auto index = static_cast<size_t>(pairs[2 * i]);
    const auto dim = static_cast<size_t>(pairs[2 * i + 1]);
    const Buffer& size = buffers[count + i];
    if (index >= count || dim >= buffers[index].dims.size() || size.dtype != ffi::DataType::S32 ||
        size.dims.size() != 0 || size.data == nullptr) {
      throw Malformed();
    }
    assign(buffers[index], dim, static_cast<int32_t*>(size.data));
  }
  buffers.resize(count);
}

void SetVisibleDtypes(std::vector<Buffer>& buffers, Pairs pairs) {
  if (pairs.size() % 2 != 0) throw Malformed();
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const auto index = static_cast<size_t>(pairs[i]);
    if (index >= buffers.size()) throw Malformed();
    buffers[index].visible_dtype = static_cast<ffi::DataType>(pairs[i + 1]);
  }
}

struct Attributes {
  int64_t callback;
  Pairs dynamic_operands;
  Pairs dynamic_results;
  Pairs narrow_operands;
  Pairs narrow_results;
};

HostCall MakeCall(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
                  const Attributes& attributes) {
  HostCall call;
  call.id = attributes.callback;
  call.callback = Registry::Global().Find(call.id);
  call.ordered = HasToken(args);
  call.operands = CopyBuffers(args, [](const auto& from, size_t i) {
    return from.template get<ffi::AnyBuffer>(i).value();
  });
  call.results = CopyBuffers(rets, [](const auto& from, size_t i) {
    return *from.template get<ffi::AnyBuffer>(i).value();
  });
  TakeSizes(call.operands, attributes.dynamic_operands,
            [](Buffer& buffer, size_t dim, const int32_t* size) {
              // XLA computes some bounded sizes wrong; memory must not be read past its end for it.
              if (*size < 0 || *size > buffer.dims[dim]) throw WrongSize(*size, buffer.dims[dim]);
              if (buffer.true_dims.empty()) {
                buffer.true_dims.assign(buffer.dims.begin(), buffer.dims.end());
              }
              buffer.true_dims[dim] = *size;
            });
  TakeSizes(call.results, attributes.dynamic_results,
            [](Buffer& buffer, size_t dim, int32_t* size) {
              buffer.sizes.resize(buffer.dims.size(), nullptr);
              buffer.sizes[dim] = size;
            });
  SetVisibleDtypes(call.operands, attributes.narrow_operands);
  SetVisibleDtypes(call.results, attributes.narrow_results);
  return call;
}

const std::string& LabelOf(const HostCall& call) {
  static const std::string* const gone = new std::string("a host callback that is gone");
  return call.callback == nullptr ? *gone : call.callback->label();
}

void Complete(ffi::Promise& promise, const HostCall& call) {
  const Profiled profiled(LabelOf(call));
  if (auto error = RunHostCall(call); error.has_value()) {
    promise.SetError(*std::move(error));
  } else {
    promise.SetAvailable();
  }
}

Result Handle(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t callback,
              Pairs dynamic_operands, Pairs dynamic_results, Pairs narrow_operands,
              Pairs narrow_results) {
  try {
    HostCall call = MakeCall(
        args, rets, {callback, dynamic_operands, dynamic_results, narrow_operands, narrow_results});
    // Without an interpreter the call ends with an error, and no thread can be made ready for it.
    if (RunsHere(call) || !PythonIsRunning()) {
      const Profiled profiled(LabelOf(call));
      return {std::nullopt, RunHostCall(call)};
    }
    ffi::Promise promise;
    ffi::Future future(promise);
    const auto kept = std::make_shared<const KeptCall>(std::move(call));
    RunOnPool([promise, kept]() mutable { Complete(promise, kept->call()); });
    return {std::move(future), std::nullopt};
  } catch (const Failure& failure) {
    return {std::nullopt, failure.ToError()};
  } catch (const std::exception& error) {
    return {std::nullopt, ffi::Error(ffi::ErrorCode::kInternal, error.what())};
  }
}

}  // namespace
}  // namespace hostcall

// XLA takes an answer at once, which costs less, as well as a future.
template <ffi::ExecutionStage stage>
struct ffi::ResultEncoding<stage, hostcall::Result> {
  static std::variant<XLA_FFI_Error*, XLA_FFI_Future*> Encode(const XLA_FFI_Api* api,
                                                              XLA_FFI_ExecutionContext* ctx,
                                                              hostcall::Result result) {
    if (result.later.has_value()) {
      return ResultEncoding<stage, Future>::Encode(api, ctx, *std::move(result.later));
    }
    if (!result.error.has_value()) return static_cast<XLA_FFI_Error*>(nullptr);
    return ResultEncoding<stage, Error>::Encode(api, ctx, *std::move(result.error));
  }
};

XLA_FFI_DEFINE_HANDLER_SYMBOL(HostcallHandler, hostcall::Handle,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("callback")
                                  .Attr<hostcall::Pairs>("dynamic_operands")
                                  .Attr<hostcall::Pairs>("dynamic_results")
                                  .Attr<hostcall::Pairs>("narrow_operands")
                                  .Attr<hostcall::Pairs>("narrow_results"));
