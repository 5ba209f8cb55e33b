#include "native.h"

#include <map>
#include <string>
#include <string_view>

#include "answered_function.h"
#include "compat/ffi.h"
#include "failure.h"
#include "fork.h"
#include "native_frame.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
namespace nb = nanobind;

namespace hostcall {
namespace {

Failure Gone(int64_t id) {
  return Failure(ffi::ErrorCode::kFailedPrecondition,
                 "The native function of the host callback with the id " + std::to_string(id) +
                     " is gone: the graph that this program was compiled from has been deleted. "
                     "Keep the tf.function (or the model) for as long as its program runs.");
}

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
    XLA_FFI_Error* const* error = std::get_if<XLA_FFI_Error*>(&outcome);
    watch.Add(&Stats::errors, error != nullptr && *error != nullptr);
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
  const std::shared_ptr<NativeFunction> function = NativeTable::Global().Find(id);
  if (function == nullptr) throw Gone(id);
  const NativeOutcome outcome = CallCounted(*function, frame);
  if (std::holds_alternative<XLA_FFI_Future*>(outcome)) {
    NativeTable::Global().KeepForEver(function);
  }
  return outcome;
}

// No exception reaches XLA.
template <typename Call>
NativeOutcome Outcome(const XLA_FFI_Api* api, Call&& call) {
  try {
    return call();
  } catch (const Failure& failure) {
    return ffi::internal::CreateError(api, failure.ToError());
  } catch (const std::exception& error) {
    return ffi::internal::CreateError(api, ffi::Error(ffi::ErrorCode::kInternal, error.what()));
  }
}

NativeOutcome Handle(Surroundings around, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     int64_t id) {
  return Outcome(around.api, [&] { return CallOf(id, MakeFrame(around, args, rets)); });
}

HOSTCALL_DEFINE_HANDLER(
    HandleBound, Handle,
    ffi::Ffi::Bind().Ctx<Surroundings>().RemainingArgs().RemainingRets().Attr<int64_t>("callback"));

// The id that a plain call has; null where the frame asks for something else, or is malformed.
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
  const NativeOutcome outcome = Outcome(frame.api, [&] {
    return CallOf(id, NativeFrame(frame.api, frame.ctx, frame.args, frame.rets));
  });
  if (XLA_FFI_Future* const* future = std::get_if<XLA_FFI_Future*>(&outcome)) {
    frame.future = *future;
    return nullptr;
  }
  return std::get<XLA_FFI_Error*>(outcome);
}

}  // namespace

NativeTable& NativeTable::Global() {
  // Leaked on purpose: XLA's threads may still look up while the process exits.
  static NativeTable* table = [] {
    HoldAcrossFork<&NativeTable::Mutex>();
    return new NativeTable();
  }();
  return *table;
}

int64_t NativeTable::Insert(std::shared_ptr<NativeFunction> function, int64_t wanted) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t id = numbers_.Next(wanted);
  functions_.emplace(id, std::move(function));
  return id;
}

void NativeTable::Remove(int64_t id, nb::object owner) {
  // Dropped last, without the lock: dropping the owner runs Python code.
  std::shared_ptr<NativeFunction> removed;
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = functions_.find(id);
  if (found == functions_.end()) return;
  removed = std::move(found->second);
  functions_.erase(found);
  removed->SetOwner(OwnerOf(std::move(owner)));
}

std::shared_ptr<NativeFunction> NativeTable::Find(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = functions_.find(id);
  return found == functions_.end() ? nullptr : found->second;
}

void NativeTable::Answer(int64_t id, nb::object answer) {
  const std::shared_ptr<NativeFunction> now = Find(id);
  if (now == nullptr) return;
  const auto* answered = dynamic_cast<const AnsweredFunction*>(now.get());
  std::shared_ptr<NativeFunction> next = answered == nullptr ? now : answered->function();
  if (!answer.is_none()) next = std::make_shared<AnsweredFunction>(next, std::move(answer));
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto found = functions_.find(id); found != functions_.end()) found->second.swap(next);
}

std::vector<std::shared_ptr<NativeFunction>> NativeTable::All() {
  std::map<int64_t, std::shared_ptr<NativeFunction>> sorted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    sorted.insert(functions_.begin(), functions_.end());
  }
  std::vector<std::shared_ptr<NativeFunction>> all;
  for (auto& [id, function] : sorted) all.push_back(std::move(function));
  return all;
}

void NativeTable::KeepForEver(std::shared_ptr<NativeFunction> function) {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.emplace(function.get(), function);
}

}  // namespace hostcall

// The FFI's binding costs a call more than a small function takes. It answers what else XLA asks.
extern "C" XLA_FFI_Error* HostcallNativeHandler(XLA_FFI_CallFrame* frame) {
  const int64_t* id = hostcall::IdOf(*frame);
  return id == nullptr ? hostcall::HandleBound(frame) : hostcall::CallDirectly(*frame, *id);
}
