#include "native.h"

#include <string>
#include <string_view>

#include "compat/ffi.h"
#include "failure.h"
#include "gone.h"
#include "native_frame.h"
#include "native_table.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

int64_t BytesOf(const RawBuffers& buffers) {
  int64_t bytes = 0;
  for (const XLA_FFI_Buffer* buffer : buffers) {
    auto size = static_cast<int64_t>(ffi::ByteWidth(static_cast<ffi::DataType>(buffer->dtype)));
    for (int64_t i = 0; i < buffer->rank; ++i) size *= buffer->dims[i];
    bytes += size;
  }
  return bytes;
}

NativeOutcome CallCounted(NativeFunction& function, const NativeFrame& frame) {
  const Profiled profiled(function.label());
  Stopwatch watch(CollectsStats() ? &function.stats() : nullptr);
  watch.Add(&Stats::calls, 1);
  try {
    const NativeOutcome outcome = function.Call(frame);
    watch.Lap(&Stats::function);
    watch.Add(&Stats::errors, outcome.error != nullptr);
    if (watch.measures())
      watch.Add(&Stats::bytes, BytesOf(frame.operands) + BytesOf(frame.results));
    return outcome;
  } catch (...) {
    watch.Lap(&Stats::function);
    watch.Add(&Stats::errors, 1);
    throw;
  }
}

NativeOutcome CallOf(int64_t id, const NativeFrame& frame) {
  const NativeTable::Use function = NativeTable::Global().Find(id);
  if (function == nullptr) throw Gone("native", id);
  const NativeOutcome outcome = CallCounted(*function, frame);
  if (outcome.future != nullptr) NativeTable::Global().KeepForEver(function.shared());
  return outcome;
}

// Turns exceptions into errors: none may reach XLA.
template <typename Call>
NativeOutcome Outcome(const XLA_FFI_Api* api, Call&& call) {
  try {
    return call();
  } catch (const Failure& failure) {
    return {ffi::internal::CreateError(api, failure.ToError()), nullptr};
  } catch (const std::exception& error) {
    const ffi::Error internal(ffi::ErrorCode::kInternal, error.what());
    return {ffi::internal::CreateError(api, internal), nullptr};
  }
}

NativeOutcome Handle(Surroundings around, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     int64_t id) {
  return Outcome(around.api, [&] { return CallOf(id, MakeFrame(around, args, rets)); });
}

HOSTCALL_DEFINE_HANDLER(
    HandleBound, Handle,
    ffi::Ffi::Bind().Ctx<Surroundings>().RemainingArgs().RemainingRets().Attr<int64_t>("callback"));

// Returns the id of a plain call; null if the frame asks for something else, or is malformed.
const int64_t* IdOf(const XLA_FFI_CallFrame& frame) {
  constexpr std::string_view kName = "callback";
  const XLA_FFI_Attrs& attrs = frame.attrs;
  if (frame.extension_start != nullptr || frame.stage != XLA_FFI_ExecutionStage_EXECUTE ||
      attrs.size != 1 || attrs.types[0] != XLA_FFI_AttrType_SCALAR ||
      std::string_view(attrs.names[0]->ptr, attrs.names[0]->len) != kName) {
    return nullptr;
  }
  const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attrs.attrs[0]);
  if (scalar->dtype != XLA_FFI_DataType_S64) return nullptr;
  return static_cast<const int64_t*>(scalar->value);
}

XLA_FFI_Error* CallDirectly(XLA_FFI_CallFrame& frame, int64_t id) {
  const NativeOutcome outcome = Outcome(frame.api, [&] { return CallOf(id, NativeFrame(frame)); });
  if (outcome.future != nullptr) frame.future = outcome.future;
  return outcome.error;
}

}  // namespace

}  // namespace hostcall

// Bypasses the FFI's binding for plain calls: it costs a call more than a small function takes.
extern "C" XLA_FFI_Error* HostcallNativeHandler(XLA_FFI_CallFrame* frame) {
  const int64_t* id = hostcall::IdOf(*frame);
  return id == nullptr ? hostcall::HandleBound(frame) : hostcall::CallDirectly(*frame, *id);
}
