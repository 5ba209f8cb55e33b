#include "native.h"

#include <map>
#include <string>

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

int64_t BytesOf(const std::vector<XLA_FFI_Buffer*>& buffers) {
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

NativeOutcome Handle(Surroundings around, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     int64_t id) {
  try {
    const std::shared_ptr<NativeFunction> function = NativeTable::Global().Find(id);
    if (function == nullptr) throw Gone(id);
    const NativeOutcome outcome = CallCounted(*function, MakeFrame(around, args, rets));
    if (std::holds_alternative<XLA_FFI_Future*>(outcome)) {
      NativeTable::Global().KeepForEver(function);
    }
    return outcome;
  } catch (const Failure& failure) {
    return ffi::internal::CreateError(around.api, failure.ToError());
  } catch (const std::exception& error) {
    return ffi::internal::CreateError(around.api,
                                      ffi::Error(ffi::ErrorCode::kInternal, error.what()));
  }
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

HOSTCALL_DEFINE_HANDLER(
    HostcallNativeHandler, hostcall::Handle,
    ffi::Ffi::Bind().Ctx<hostcall::Surroundings>().RemainingArgs().RemainingRets().Attr<int64_t>(
        "callback"));
