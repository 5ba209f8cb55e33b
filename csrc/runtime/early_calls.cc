#include "early_calls.h"

#include <Python.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "call.h"
#include "call_table.h"
#include "failure.h"
#include "fork.h"
#include "frame.h"
#include "gil.h"
#include "interrupts.h"
#include "pool.h"
#include "registry.h"

namespace ffi = xla::ffi;

namespace hostcall {

namespace {

// Memory as XLA gives it: aligned, and null if empty.
class Memory {
 public:
  explicit Memory(int64_t size) : size_(static_cast<size_t>(size)) {
    if (size_ > 0) data_.reset(::operator new(size_, kAlignment));
  }

  void* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(void* data) const { ::operator delete(data, kAlignment); }
  };

  size_t size_;
  std::unique_ptr<void, Free> data_;
};

// Parses the attribute `results`.
Buffers ReadResults(Dims described) {
  Buffers results;
  for (size_t i = 0; i < described.size();) {
    if (described.size() - i < 2) throw Failure::Malformed();
    const auto dtype = static_cast<ffi::DataType>(described[i]);
    const int64_t rank = described[i + 1];
    i += 2;
    if (rank < 0 || static_cast<uint64_t>(rank) > described.size() - i) throw Failure::Malformed();
    Buffer& result = results.emplace_back();
    result.dtype = result.visible_dtype = dtype;
    result.dims = Dims(described.begin() + i, static_cast<size_t>(rank));
    i += static_cast<size_t>(rank);
  }
  return results;
}

// A call with results in memory of their own: the program may end before the call does.
class EarlyCall {
 public:
  // Allocates memory for the results.
  explicit EarlyCall(Buffers& results) {
    for (Buffer& result : results) {
      result.data = results_.emplace_back(SizeInBytes(result)).data();
    }
  }
  EarlyCall(const EarlyCall&) = delete;
  EarlyCall& operator=(const EarlyCall&) = delete;

  // Ends the call, with an error if any, or gives it up.
  void End(std::optional<ffi::Error> error) {
    std::optional<Taker> taker;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (has_ended_) return;  // it was given up
      error_ = std::move(error);
      has_ended_ = true;
      taker = std::move(taker_);
    }
    if (!taker.has_value()) return;
    Complete(taker->promise, Deliver(taker->results));
  }

  // Copies the results into the program's as soon as they exist.
  Result Take(const Buffers& results) {
    if (results.size() != results_.size()) throw Failure::Malformed();
    std::vector<void*> to;
    for (size_t i = 0; i < results.size(); ++i) {
      if (SizeInBytes(results[i]) != static_cast<int64_t>(results_[i].size()))
        throw Failure::Malformed();
      to.push_back(results[i].data);
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!has_ended_) {
        ffi::Promise promise;
        ffi::Future future(promise);
        taker_ = Taker{std::move(promise), std::move(to)};
        return {std::move(future), std::nullopt};
      }
    }
    return {std::nullopt, Deliver(to)};
  }

 private:
  struct Taker {
    ffi::Promise promise;
    std::vector<void*> results;
  };

  // Copies the results or returns the error. The call has ended, so nothing changes them any more.
  std::optional<ffi::Error> Deliver(const std::vector<void*>& to) {
    if (error_.has_value()) return std::move(error_);
    for (size_t i = 0; i < to.size(); ++i) {
      if (results_[i].size() > 0) std::memcpy(to[i], results_[i].data(), results_[i].size());
    }
    return std::nullopt;
  }

  std::vector<Memory> results_;
  std::mutex mutex_;
  bool has_ended_ = false;
  std::optional<ffi::Error> error_;
  std::optional<Taker> taker_;
};

// The early calls whose results were not taken, by handle.
class EarlyCalls : public HeldAcrossFork<EarlyCalls> {
 public:
  int64_t BeginRun() {
    std::lock_guard<std::mutex> lock(mutex_);
    runs_.insert(next_);
    return next_++;
  }

  void EndRun(int64_t run) {
    std::vector<std::shared_ptr<EarlyCall>> dropped;  // destroyed without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    runs_.erase(run);
    while (!calls_.empty() && (runs_.empty() || calls_.begin()->first < *runs_.begin())) {
      dropped.push_back(std::move(calls_.extract(calls_.begin()).mapped()));
    }
  }

  int64_t Add(std::shared_ptr<EarlyCall> call) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.emplace_hint(calls_.end(), next_, std::move(call));
    return next_++;
  }

  // Returns null for an unknown handle.
  std::shared_ptr<EarlyCall> Remove(int64_t handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto node = calls_.extract(handle);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

  size_t size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_.size();
  }

 private:
  int64_t next_ = FirstId();
  std::map<int64_t, std::shared_ptr<EarlyCall>> calls_;
  std::set<int64_t> runs_;  // numbered together with the calls, to show which came first
};

// Returns whether to make a call at once: one that is known to be short, if possible. See
// `MayRunHere` in handler.cc.
bool RunsAtOnce(const HostCall& call) {
  if (!PythonIsRunning() || call.callback == nullptr) return true;  // it ends with an error
  return PyGILState_GetThisThreadState() != nullptr && call.callback->WasShort();
}

// The state of a call that outlives its frame, when its operands' memory may be reused.
struct BegunCall {
  BegunCall(HostCall&& host_call, std::vector<Memory> copies,
            const std::shared_ptr<EarlyCall>& early)
      : call(std::move(host_call)),
        operands(std::move(copies)),
        results(early),
        waiting(call, [kept = std::weak_ptr<EarlyCall>(early)](const ffi::Error& error) {
          if (const auto given_up = kept.lock()) given_up->End(error);
        }) {}

  const HostCall call;
  const std::vector<Memory> operands;
  const std::shared_ptr<EarlyCall> results;  // the call writes to its memory
  const interrupts::Waiting waiting;
};

void Begin(HostCall& call, const std::shared_ptr<EarlyCall>& early) {
  if (RunsAtOnce(call)) {
    early->End(RunHostCall(call));
    return;
  }
  call.OutliveFrame();
  std::vector<Memory> operands;
  for (Buffer& operand : call.operands) {
    const Memory& memory = operands.emplace_back(SizeInBytes(operand));
    if (memory.size() > 0) std::memcpy(memory.data(), operand.data, memory.size());
    operand.data = memory.data();
  }
  const auto begun = std::make_shared<const BegunCall>(std::move(call), std::move(operands), early);
  RunOnPool([begun] { begun->results->End(RunHostCall(begun->call)); });
}

// Returns the handle: the only result of a call, or the first operand. It is a scalar.
int64_t* HandleIn(const RawBuffers& buffers) {
  if (buffers.size() == 0 || buffers[0]->dtype != XLA_FFI_DataType_S64 || buffers[0]->rank != 0 ||
      buffers[0]->data == nullptr) {
    throw Failure::Malformed();
  }
  return static_cast<int64_t*>(buffers[0]->data);
}

Result Start(const XLA_FFI_CallFrame& frame) {
  const Attributes attributes(frame.attrs);
  int64_t* handle = HandleIn(RawBuffers(frame.rets));
  HostCall call(frame, attributes);
  call.ordered = false;
  call.is_timed = true;
  call.in_program_memory = false;
  call.results = ReadResults(attributes.results);
  const auto early = std::make_shared<EarlyCall>(call.results);
  call.ReadSizes(attributes);
  Begin(call, early);
  *handle = EarlyCalls::Global().Add(early);
  return {};
}

Result Gate(const XLA_FFI_CallFrame& frame) {
  *HandleIn(RawBuffers(frame.rets)) = 0;
  return {};
}

Result Done(const XLA_FFI_CallFrame& frame) {
  const auto early = EarlyCalls::Global().Remove(*HandleIn(RawBuffers(frame.args)));
  if (early == nullptr) {
    throw Failure(ffi::ErrorCode::kInternal,
                  "hostcall: the results of a host callback were taken already, or it was never "
                  "begun. This is a bug in hostcall; please report it.");
  }
  return early->Take(BuffersOf(frame.rets));
}

}  // namespace

int64_t BeginRun() { return EarlyCalls::Global().BeginRun(); }

void EndRun(int64_t run) { EarlyCalls::Global().EndRun(run); }

int64_t CountEarlyCalls() { return static_cast<int64_t>(EarlyCalls::Global().size()); }

}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallStartHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::Start);
}
extern "C" XLA_FFI_Error* HostcallGateHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::Gate);
}
extern "C" XLA_FFI_Error* HostcallDoneHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::Done);
}
