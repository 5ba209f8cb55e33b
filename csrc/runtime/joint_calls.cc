// Calls that the devices of one program make together. The part of one device may not end before
// those of the others: if a call fails, no other device may go on and wait in a collective for the
// one that has failed. XLA ends the process for that.
#include <Python.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "call.h"
#include "failure.h"
#include "fork.h"
#include "frame.h"
#include "gil.h"
#include "handler.h"
#include "pool.h"
#include "reports.h"
#include "turns.h"

namespace ffi = xla::ffi;

namespace hostcall {

namespace {

// A device at a custom call.
struct Member {
  int64_t shard;  // below 0 if another process makes the call
  std::shared_ptr<const HostCall> call;
  ffi::Promise promise;
  std::optional<Report> report;  // in programs for several processes
};
using Members = std::vector<Member>;

// Completes each call on its own thread: XLA goes on there, perhaps until other devices do so too.
void Tell(const Members& members, const std::optional<ffi::Error>& error) {
  for (const Member& member : members) {
    RunOnPoolOrHere([promise = member.promise, error]() mutable { Complete(promise, error); });
  }
}

// The devices that wait for others, and the failed runs.
class Meetings : public HeldAcrossFork<Meetings> {
 public:
  // Adds a device, and returns all of them if it is the last to arrive. If the run has failed, the
  // device gets the error at once.
  Members Join(int64_t run, int64_t callback, Member member, size_t devices) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (auto failed = failed_.find(run); failed != failed_.end()) {
      const ffi::Error error = failed->second;
      lock.unlock();  // first: XLA may go on here
      member.promise.SetError(error);
      return {};
    }
    const auto where = waiting_.try_emplace({run, callback}).first;
    where->second.push_back(std::move(member));
    if (where->second.size() < devices) return {};
    return std::move(waiting_.extract(where).mapped());
  }

  // Marks a run as failed, and tells the devices that wait in it: not all others will arrive.
  void Fail(int64_t run, const ffi::Error& error) {
    std::vector<Members> dropped;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!failed_.emplace(run, error).second) return;
      order_.push_back(run);
      if (order_.size() > kKept) {
        failed_.erase(order_.front());
        order_.pop_front();
      }
      for (auto it = waiting_.lower_bound({run, INT64_MIN});
           it != waiting_.end() && it->first.first == run;) {
        dropped.push_back(std::move(it->second));
        it = waiting_.erase(it);
      }
    }
    for (Members& members : dropped) Tell(members, error);
  }

 private:
  // Failed runs end soon, and other runs have other ids.
  static constexpr size_t kKept = 256;

  std::map<std::pair<int64_t, int64_t>, Members> waiting_;  // by run and callback
  std::map<int64_t, ffi::Error> failed_;
  std::deque<int64_t> order_;  // failed runs, the oldest first
};

Failure Differs() {
  return Failure::InvalidArgument(
      "hostcall: devices that should have the same shard of an array have different values, so "
      "that one call cannot stand for all of them. A mapping such as jax.vmap(spmd_axis_name=...) "
      "may have divided it once more: call the function in jax.shard_map instead.");
}

void CheckSame(const HostCall& one, const HostCall& other) {
  if (one.operands.size() != other.operands.size() || one.results.size() != other.results.size())
    throw Failure::Malformed();
  for (size_t i = 0; i < one.operands.size(); ++i) {
    const int64_t size = SizeInBytes(one.operands[i]);
    if (size != SizeInBytes(other.operands[i])) throw Failure::Malformed();
    if (size > 0 &&
        std::memcmp(one.operands[i].data, other.operands[i].data, static_cast<size_t>(size)) != 0) {
      throw Differs();
    }
  }
  for (size_t i = 0; i < one.results.size(); ++i) {
    if (SizeInBytes(one.results[i]) != SizeInBytes(other.results[i])) throw Failure::Malformed();
  }
}

void CopyResults(const HostCall& from, const HostCall& to) {
  for (size_t i = 0; i < to.results.size(); ++i) {
    const auto size = static_cast<size_t>(SizeInBytes(to.results[i]));
    if (size > 0) std::memcpy(to.results[i].data, from.results[i].data, size);
  }
}

void Clear(const Buffers& results) {
  for (const Buffer& result : results) {
    const auto size = static_cast<size_t>(SizeInBytes(result));
    if (size > 0) std::memset(result.data, 0, size);
  }
}

// All devices at one custom call, and its calls under way.
class Meeting {
 public:
  Meeting(int64_t run, Members members, size_t shards, int64_t process)
      : run_(run), process_(process), members_(std::move(members)), errors_(shards), left_(shards) {
    std::map<int64_t, Calls> by_shard;
    for (const Member& member : members_) {
      if (member.shard >= 0) by_shard[member.shard].push_back(member.call.get());
    }
    for (auto& [shard, calls] : by_shard) shards_.push_back(std::move(calls));
  }

  // Returns whether the calls overlap.
  bool IsConcurrent() const { return members_.front().call->is_concurrent(); }

  // Makes the calls, on this thread and, if they are concurrent, others of the pool. The last one
  // to end tells the devices.
  static void Hold(std::shared_ptr<Meeting> meeting) {
    if (auto error = meeting->Check(); error.has_value()) {
      meeting->End(*error);
    } else if (meeting->shards_.empty() || !meeting->IsConcurrent()) {
      for (size_t shard = 0; shard < meeting->shards_.size() && !error.has_value(); ++shard) {
        error = RunHostCall(*meeting->shards_[shard].front());
      }
      meeting->End(error);
    } else {
      for (size_t shard = 1; shard < meeting->shards_.size(); ++shard) {
        RunOnPoolOrHere([meeting, shard] { meeting->RunOne(shard); });
      }
      meeting->RunOne(0);
    }
  }

  // Ends the calls of all devices.
  void End(const std::optional<ffi::Error>& error) {
    if (!error.has_value()) CopyAll();
    if (IsOfSeveralProcesses()) return TellAllProcesses(error);
    if (error.has_value()) Meetings::Global().Fail(run_, *error);
    // After all copies: XLA may reuse the memory of those that were called.
    Tell(members_, error);
  }

 private:
  using Calls = std::vector<const HostCall*>;

  std::optional<ffi::Error> Check() const {
    try {
      if (shards_.size() != errors_.size()) throw Failure::Malformed();
      for (const Calls& calls : shards_) {
        for (size_t i = 1; i < calls.size(); ++i) CheckSame(*calls.front(), *calls[i]);
      }
    } catch (const Failure& failure) {
      return ToError(failure, *members_.front().call);
    }
    return std::nullopt;
  }

  void RunOne(size_t shard) {
    errors_[shard] = RunHostCall(*shards_[shard].front());
    if (--left_ > 0) return;
    const auto failed = std::find_if(errors_.begin(), errors_.end(),
                                     [](const auto& error) { return error.has_value(); });
    End(failed == errors_.end() ? std::nullopt : *failed);
  }

  void CopyAll() const {
    for (const Calls& calls : shards_) {
      for (size_t i = 1; i < calls.size(); ++i) CopyResults(*calls.front(), *calls[i]);
    }
  }

  bool IsOfSeveralProcesses() const { return members_.front().report.has_value(); }

  // Has all devices go on: the program tells those of other processes of an error.
  void TellAllProcesses(const std::optional<ffi::Error>& error) const {
    for (const Member& member : members_) {
      if (member.shard < 0 || error.has_value()) Clear(member.call->results);
      Write(*member.report, error, process_);
    }
    Tell(members_, std::nullopt);
  }

  const int64_t run_;
  const int64_t process_;
  const Members members_;
  std::vector<Calls> shards_;  // the first call of each is made
  std::vector<std::optional<ffi::Error>> errors_;
  std::atomic<size_t> left_;
};

// Takes the number of the device's shard off the operands.
int64_t TakeShard(HostCall& call) {
  if (call.operands.empty()) throw Failure::Malformed();
  const Buffer& shard = call.operands.front();
  if (shard.dtype != ffi::DataType::S32 || shard.dims.size() != 0 || shard.data == nullptr)
    throw Failure::Malformed();
  const int64_t number = *static_cast<const int32_t*>(shard.data);
  call.operands.erase_front();
  return number;
}

// Takes the report off the results, in a program for several processes.
std::optional<Report> TakeReport(HostCall& call, const Attributes& attributes) {
  if (attributes.process < 0) return std::nullopt;
  if (call.results.empty()) throw Failure::Malformed();
  const Report report = ReportIn(call.results[call.results.size() - 1]);
  call.results.resize(call.results.size() - 1);
  return report;
}

Result HandleJoint(const XLA_FFI_CallFrame& frame) {
  const Attributes attributes(frame.attrs);
  HostCall call(frame, attributes);
  const int64_t shard = TakeShard(call);
  const bool is_elsewhere = attributes.process >= 0 && shard == -1;
  if (attributes.dynamic_operands.size() + attributes.dynamic_results.size() > 0 ||
      (shard < 0 && !is_elsewhere) || shard >= attributes.shards ||
      attributes.devices < attributes.shards) {
    throw Failure::Malformed();
  }
  const std::optional<Report> report = TakeReport(call, attributes);
  call.ReadSizes(attributes);
  const int64_t run = call.run.number;
  // Without an interpreter the call ends with an error, and no thread can be made ready for it.
  if (!PythonIsRunning()) return {std::nullopt, RunHostCall(call)};
  call.OutliveFrame();
  ffi::Promise promise;
  ffi::Future future(promise);
  Member member{shard, std::make_shared<const HostCall>(std::move(call)), std::move(promise),
                report};
  Members all = Meetings::Global().Join(run, attributes.callback, std::move(member),
                                        static_cast<size_t>(attributes.devices));
  if (!all.empty()) {
    auto meeting = std::make_shared<Meeting>(
        run, std::move(all), static_cast<size_t>(attributes.shards), attributes.process);
    try {
      if (meeting->IsConcurrent()) {
        RunOnPool([meeting] { Meeting::Hold(meeting); });
      } else {
        turns::RunInTurn(run, [meeting, run] {
          Meeting::Hold(meeting);
          turns::End(run);
        });
      }
    } catch (const std::exception& error) {  // no thread can be started: all devices hear of it
      meeting->End(ffi::Error(ffi::ErrorCode::kResourceExhausted, error.what()));
    }
  }
  return {std::move(future), std::nullopt};
}

Result HandleReported(const XLA_FFI_CallFrame& frame) {
  int64_t process = -1;
  AttributeReader(frame.attrs).Take("process", process).End();
  const Buffers operands = BuffersOf(frame.args);
  const Buffers results = BuffersOf(frame.rets);
  if (operands.size() != 1 || results.size() != 1) throw Failure::Malformed();
  const std::optional<ffi::Error> error = Read(ReportIn(operands[0]), process);
  if (error.has_value()) Meetings::Global().Fail(turns::RunOf(frame.api, frame.ctx).number, *error);
  Clear(results);
  return {std::nullopt, error};
}

}  // namespace
}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallJointHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::HandleJoint);
}

extern "C" XLA_FFI_Error* HostcallReportedHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::HandleReported);
}
