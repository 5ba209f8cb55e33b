#include "call.h"

#include <chrono>
#include <string>
#include <utility>

#include "annotations.h"
#include "arguments.h"
#include "gil.h"
#include "nesting.h"
#include "pool.h"
#include "results.h"
#include "running_calls.h"
#include "stats.h"
#include "text.h"
#include "turns.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Takes the true sizes off the end of `buffers`. Each has a pair, the index of a buffer and a
// dimension, for which `assign` stores it.
template <typename Assign>
void TakeSizes(Buffers& buffers, Pairs pairs, Assign assign) {
  const size_t sizes = pairs.size() / 2;
  if (pairs.size() % 2 != 0 || sizes > buffers.size()) throw Failure::Malformed();
  const size_t count = buffers.size() - sizes;
  for (size_t i = 0; i < sizes; ++i) {
    const auto index = static_cast<size_t>(pairs[2 * i]);
    const auto dim = static_cast<size_t>(pairs[2 * i + 1]);
    const Buffer& size = buffers[count + i];
    if (index >= count || dim >= buffers[index].dims.size() || size.dtype != ffi::DataType::S32 ||
        size.dims.size() != 0 || size.data == nullptr) {
      throw Failure::Malformed();
    }
    assign(buffers[index], dim, static_cast<int32_t*>(size.data));
  }
  buffers.resize(count);
}

void SetVisibleDtypes(Buffers& buffers, Pairs pairs) {
  if (pairs.size() % 2 != 0) throw Failure::Malformed();
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const auto index = static_cast<size_t>(pairs[i]);
    if (index >= buffers.size()) throw Failure::Malformed();
    buffers[index].visible_dtype = static_cast<ffi::DataType>(pairs[i + 1]);
  }
}

// Leaked like the dtypes: it must not be released after the interpreter is gone.
nb::object& error_describer = *new nb::object();

nb::object& binder = *new nb::object();

// Returns null if the target is gone.
nb::object TargetOf(const HostCall& call) {
  return call.callback == nullptr ? nb::object() : call.callback->Target();
}

nb::object FindTarget(const HostCall& call) {
  nb::object target = TargetOf(call);
  if (!target.is_valid()) throw Gone("Python", call.id);
  return target;
}

std::string TextOf(nb::handle target, const char* name, DeferredDecrefScope& decrefs) {
  return Text(decrefs.Attribute(target, decrefs.Defer(PyUnicode_InternFromString(name)).ptr()));
}

// Returns the error if describing the exception fails, as at the end of Python's recursion limit.
// Its text ends with the name of a node: TensorFlow would search it for one in quadratic time.
ffi::Error Untold(nb::handle exception, const std::string& reason) {
  return ffi::Error(ffi::ErrorCode::kUnknown,
                    std::string(Py_TYPE(exception.ptr())->tp_name) + ": " + Text(exception) +
                        "\n(and telling of it failed: " + reason + ")\n\t [[{{node hostcall}}]]");
}

ffi::Error AskDescriber(nb::handle exception, const HostCall& call, DeferredDecrefScope& decrefs) {
  nb::object target = TargetOf(call);
  nb::handle known = decrefs.Defer(target.is_valid() ? std::move(target) : nb::none());
  nb::handle described = decrefs.Call(error_describer, exception, known);
  return ffi::Error(static_cast<ffi::ErrorCode>(nb::cast<int>(described[0])), Text(described[1]));
}

// Describes an exception. Tries again, up to `tries` times, if a Ctrl-C interrupts the description.
ffi::Error Describe(nb::handle exception, const HostCall& call, DeferredDecrefScope& decrefs,
                    int tries = 3) {
  try {
    return AskDescriber(exception, call, decrefs);
  } catch (nb::python_error& failed) {
    nb::handle raised = decrefs.Defer(nb::borrow(failed.value()));
    if (tries > 1 && failed.matches(PyExc_KeyboardInterrupt)) {
      return Describe(exception, call, decrefs, tries - 1);
    }
    // Not what(), which has the frames of the whole program.
    return Untold(exception, Text(raised));
  } catch (const std::exception& failed) {
    return Untold(exception, failed.what());
  }
}

// Calls the function and stores its results.
void CallOn(const Arguments& arguments, const HostCall& call, nb::handle target,
            DeferredDecrefScope& decrefs, Measured& measured) {
  nb::handle function = decrefs.Defer(call.callback->HostFunction(target));
  if (call.elsewhere && binder.is_valid()) {
    function = decrefs.Call(binder, function, nb::int_(call.id), nb::int_(call.run.number),
                            nb::int_(call.thread));
  }
  nb::handle returned;
  if (call.is_timed) {
    const auto start = std::chrono::steady_clock::now();
    returned = arguments.Call(function, decrefs);
    call.callback->SetDuration(std::chrono::steady_clock::now() - start);
  } else {
    returned = arguments.Call(function, decrefs);
  }
  measured.Lap(&Stats::function);
  const auto title = [&] { return TextOf(target, "title", decrefs); };
  if (call.convention().takes_out) {
    arguments.StoreOut(returned, call, title);
  } else {
    StoreResults(returned, call, target, title, decrefs);
  }
  measured.Lap(&Stats::copying);
}

Failure StillReferenced(const HostCall& call, const std::string& title) {
  if (call.convention().on_device) {
    return Failure::InvalidArgument(
        title +
        " has returned, and something still has the memory of an array that it was lent for the "
        "call alone: it is declared with memory=\"device\". Keep a copy of it.");
  }
  return Failure::InvalidArgument(
      title +
      " has returned, and something still refers to an array that it borrowed for the call alone: "
      "it is declared with borrow=True or out=True. Keep a copy, np.array(x), or remove these.");
}

// Makes the call; may throw. Gives all new Python objects to `decrefs`.
void CallAndStore(const HostCall& call, DeferredDecrefScope& decrefs, Measured& measured) {
  nb::handle target = decrefs.Defer(FindTarget(call));
  const NestedCall nested;
  try {
    if (nested.LacksStack()) {
      throw Failure(ffi::ErrorCode::kResourceExhausted, nested.Complaint());
    }
    std::optional<ProgramMemory> memory(call.abandonment);
    const Arguments arguments(call, target, decrefs);
    memory.reset();
    measured.Lap(&Stats::copying);
    if (!call.lends()) {
      CallOn(arguments, call, target, decrefs, measured);
      return;
    }
    {
      DeferredDecrefScope returned;  // dropped before the check for remaining references
      CallOn(arguments, call, target, returned, measured);
    }
    if (arguments.AnyIsStillReferenced())
      throw StillReferenced(call, TextOf(target, "title", decrefs));
  } catch (const Failure& failure) {
    throw failure.In(TextOf(target, "description", decrefs));
  }
}

int64_t CalledBytes(const HostCall& call) {
  int64_t bytes = 0;
  for (const Buffer& operand : call.operands) bytes += SizeInBytes(operand);
  for (const Buffer& result : call.results) bytes += SizeInBytes(result);
  return bytes;
}

const std::string& LabelOf(const HostCall& call) {
  static const std::string* const gone = new std::string("a host callback that is gone");
  return call.callback == nullptr ? *gone : call.callback->label();
}

// Makes the call under the GIL; never throws.
std::optional<ffi::Error> CallWithGil(const HostCall& call, Measured& measured) {
  DeferredDecrefScope decrefs;
  const RunningCall running(LabelOf(call));
  const Annotated annotated(LabelOf(call), decrefs);
  nb::handle raised;
  try {
    CallAndStore(call, decrefs, measured);
    if (measured.counts()) measured.Add(&Stats::bytes, CalledBytes(call));
    return std::nullopt;
  } catch (const Failure& failure) {
    return failure.ToError();
  } catch (nb::python_error& error) {
    // The frames of its traceback hold the objects of the user's function.
    raised = decrefs.Defer(nb::borrow(error.value()));
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, error.what());
  }
  return Describe(raised, call, decrefs);
}

}  // namespace

ProgramMemory::ProgramMemory(Abandonment* abandonment) {
  if (abandonment == nullptr) return;
  lock_ = std::unique_lock<std::mutex>(abandonment->mutex);
  if (abandonment->is_abandoned) throw Failure(ffi::ErrorCode::kCancelled, "given up");
}

HostCall::HostCall(const XLA_FFI_CallFrame& frame, const Attributes& attributes)
    : id(attributes.callback),
      callback(Registry::Global().Find(id)),
      run(turns::RunOf(frame.api, frame.ctx)),
      operands(BuffersOf(frame.args)),
      results(BuffersOf(frame.rets)) {
  ordered = operands.size() < static_cast<size_t>(frame.args.size);
  // Another thread started this program, or XLA goes on here because a call has ended.
  if (OnPoolThread()) RunElsewhere();
}

void HostCall::ReadSizes(const Attributes& attributes) {
  TakeSizes(operands, attributes.dynamic_operands,
            [this](Buffer& buffer, size_t dim, const int32_t* size) {
              if (buffer.true_dims == nullptr) {
                buffer.true_dims = dims.emplace_back(buffer.dims.begin(), buffer.dims.end()).data();
              }
              buffer.true_dims[dim] = CheckedSize(*size, buffer.dims[dim], "a host callback");
            });
  TakeSizes(results, attributes.dynamic_results, [this](Buffer& buffer, size_t dim, int32_t* size) {
    if (buffer.sizes == nullptr) {
      buffer.sizes = sizes.emplace_back(buffer.dims.size(), nullptr).data();
    }
    buffer.sizes[dim] = size;
  });
  SetVisibleDtypes(operands, attributes.sub_byte_operands);
  SetVisibleDtypes(results, attributes.sub_byte_results);
}

void HostCall::RunElsewhere() {
  elsewhere = is_timed = true;
  if (PyGILState_GetThisThreadState() != nullptr) thread = PyThread_get_thread_ident();
}

void HostCall::OutliveFrame() {
  RunElsewhere();
  for (auto* buffers : {&operands, &results}) {
    for (Buffer& buffer : *buffers) {
      buffer.dims = dims.emplace_back(buffer.dims.begin(), buffer.dims.end());
    }
  }
}

void SetBinder(nb::object function) { binder = std::move(function); }

void SetErrorDescriber(nb::object function) { error_describer = std::move(function); }

std::optional<ffi::Error> RunHostCall(const HostCall& call) noexcept {
  Measured measured(LabelOf(call), call.callback == nullptr ? nullptr : &call.callback->stats());
  if (!PythonIsRunning()) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "A compiled program called back into Python, but the interpreter is "
                      "shutting down. Wait for running programs before the process exits.");
  }
  GilHold gil;
  measured.Lap(&Stats::waiting);
  std::optional<ffi::Error> error = CallWithGil(call, measured);
  if (error.has_value()) measured.Add(&Stats::errors, 1);
  return error;
}

ffi::Error ToError(const Failure& failure, const HostCall& call) noexcept {
  if (!PythonIsRunning()) return failure.ToError();
  GilHold gil;
  DeferredDecrefScope decrefs;
  try {
    nb::handle target = decrefs.Defer(FindTarget(call));
    return failure.In(TextOf(target, "description", decrefs)).ToError();
  } catch (const std::exception&) {
    return failure.ToError();
  }
}

}  // namespace hostcall
