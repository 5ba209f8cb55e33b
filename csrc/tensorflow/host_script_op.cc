// Script ops of partitioned functions: TensorFlow's own kernels, on threads of hostcall's.
//
// TensorFlow runs an op on one of its few inter-op threads. If callbacks held them all, a callback
// that itself runs a function would wait for ever.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "functions/partition_errors.h"
#include "functions/wrapped_kernel.h"
#include "interruptible_run.h"
#include "module.h"
#include "runtime/gil.h"
#include "runtime/nesting.h"
#include "runtime/text.h"
#include "starters.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {
namespace {

// Bits for the first inputs of the op that this thread runs: 1 if the memory is the op's alone, so
// that the function may write to it.
thread_local uint64_t unshared_inputs = 0;
// The run that the op belongs to, if another thread has started that run.
thread_local int64_t run_of_op = starters::kNoRun;
constexpr int kMaxInputs = 64;

uint64_t UnsharedInputs(const tensorflow::OpKernelContext& ctx) {
  uint64_t unshared = 0;
  for (int i = 0; i < ctx.num_inputs() && i < kMaxInputs; ++i) {
    if (ctx.input(i).RefCountIsOne()) unshared |= uint64_t{1} << i;
  }
  return unshared;
}

// Takes out the status that host_calls.py has packed into the text of an exception. The stock
// kernel knows few codes itself, and adds a traceback whose frames are not the user's.
absl::Status Carried(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string_view message = status.message();
  const size_t begin = message.find("[hostcall call ");
  int call = 0, code = 0, length = 0;
  if (begin == std::string_view::npos ||
      std::sscanf(&message[begin], "[hostcall call %d, status %d] %n", &call, &code, &length) < 2) {
    return status;
  }
  const std::string_view rest = message.substr(begin + length);
  const size_t end = rest.find(absl::StrCat(" [end of hostcall call ", call, "]"));
  if (end == std::string_view::npos) return status;
  return absl::Status(static_cast<absl::StatusCode>(code), rest.substr(0, end));
}

// Returns the Python function that says why a nested call cannot be made, if it cannot. Leaked like
// all that holds Python objects.
nanobind::object& refusal = *new nanobind::object();

// Returns the token of the registry's entry that keeps the contract of compiled calls, from a
// NodeDef. Leaked, too.
nanobind::object& token_on_host = *new nanobind::object();

// Creates TensorFlow's kernel for a node, which calls that entry. The node's own token stays in the
// graph: it may have to be valid in other processes, and when the entry is gone.
absl::Status CreateKernelOnHost(tensorflow::OpKernelConstruction* construction, KernelPtr* stock) {
  std::string token;
  if (PythonIsRunning()) {
    const std::string node = construction->def().SerializeAsString();
    GilHold gil;
    const nanobind::object found = nanobind::steal(UntilExit([&] {
      return PyObject_CallOneArg(token_on_host.ptr(),
                                 nanobind::bytes(node.data(), node.size()).ptr());
    }));
    if (found.is_valid()) {
      token = Text(found);
    } else {
      PyErr_Clear();  // the call of the function raises it again
    }
  }
  return CreateStockKernel(construction, stock, token);
}

// Checks that a call can be made from here. TensorFlow's kernel must not find out itself: if Python
// reaches its recursion limit in there, the process may end.
absl::Status CheckNesting(const NestedCall& call, const std::string& token) {
  if (!call.is_nested() || !PythonIsRunning()) return absl::OkStatus();
  const std::string complaint = call.LacksStack() ? call.Complaint() : "";
  GilHold gil;
  const nanobind::object refused = nanobind::steal(UntilExit([&] {
    return PyObject_CallFunction(refusal.ptr(), "ss", token.c_str(), complaint.c_str());
  }));
  if (!refused.is_valid()) {
    PyErr_Clear();
    return absl::UnknownError(
        "RecursionError: maximum recursion depth exceeded\n\t [[{{node hostcall}}]]");
  }
  if (refused.is_none()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(nanobind::cast<int>(refused[0])),
                      Text(refused[1]));
}

// Runs the stock kernel of an op on this thread.
absl::Status RunStock(tensorflow::OpKernel* stock, const std::string& token, uint64_t unshared,
                      const starters::StartedRun& run, tensorflow::OpKernelContext* inner) {
  const NestedCall call;
  absl::Status status = CheckNesting(call, token);
  if (status.ok()) {
    unshared_inputs = unshared;
    run_of_op = starters::NumberOf(run);
    const starters::Scope own(nullptr);  // the function starts runs of its own
    stock->Compute(inner);
    status = Carried(inner->status());
  }
  return status.ok() ? status : WithOwnText(status);
}

// A call that may be given up. It then goes on with its own data: the run of its op is over, and
// the op may be gone.
class InterruptibleCall {
 public:
  InterruptibleCall(tensorflow::OpKernelContext* ctx, std::shared_ptr<tensorflow::OpKernel> stock,
                    tensorflow::AsyncOpKernel::DoneCallback done)
      : ctx_(ctx),
        done_(std::move(done)),
        stock_(std::move(stock)),
        token_(stock_->def().attr().at("token").s()),
        unshared_(UnsharedInputs(*ctx)),
        run_(StartedRunOf(*ctx)),
        output_attributes_(ctx->params()->output_attr_array,
                           ctx->params()->output_attr_array + ctx->num_outputs()) {
    for (int i = 0; i < ctx->num_inputs(); ++i) inputs_.push_back(ctx->input(i));
    for (tensorflow::Tensor& input : inputs_) values_.emplace_back(&input);
    tensorflow::OpKernelContext::Params params;  // those that the stock kernels read
    params.step_id = ctx->step_id();
    params.device = ctx->params()->device;
    params.output_attr_array = output_attributes_.data();
    params.inputs = values_;
    inner_.emplace(params, ctx->num_outputs(), stock_.get());
  }

  void Run() {
    if (has_ended_) return;
    const absl::Status status = RunStock(stock_.get(), token_, unshared_, run_, inner_->get());
    if (!TakeOp()) return;
    inner_->HandOver(ctx_, status);
    inner_.reset();
    inputs_.clear();  // now, as ComputeHolding says
    done_();
  }

  void GiveUp(const absl::Status& error) {
    if (!TakeOp()) return;
    ctx_->SetStatus(error);
    done_();
  }

 private:
  // Claims the right to end the op. Returns true for the first caller only.
  bool TakeOp() { return !has_ended_.exchange(true); }

  tensorflow::OpKernelContext* const ctx_;
  const tensorflow::AsyncOpKernel::DoneCallback done_;
  const std::shared_ptr<tensorflow::OpKernel> stock_;
  const std::string token_;
  const uint64_t unshared_;
  const starters::StartedRun run_;
  const std::vector<tensorflow::AllocatorAttributes> output_attributes_;
  std::vector<tensorflow::Tensor> inputs_;
  std::vector<tensorflow::TensorValue> values_;
  std::optional<InnerContext> inner_;
  std::atomic<bool> has_ended_{false};
};

class HostScriptOp : public tensorflow::AsyncOpKernel {
 public:
  explicit HostScriptOp(tensorflow::OpKernelConstruction* construction)
      : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("token", &token_));
    KernelPtr stock;
    OP_REQUIRES_OK(construction, CreateKernelOnHost(construction, &stock));
    stock_ = std::move(stock);
  }

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    const std::shared_ptr<CallsOfRun> calls = CallsOfRun::Of(*ctx);
    if (calls != nullptr && !IsThreadOfPython()) {
      RunInterruptibly(calls, std::make_shared<InterruptibleCall>(ctx, stock_, std::move(done)));
      return;
    }
    const absl::Status started = RunBesideTensorFlow([this, ctx, done] {
      Run(ctx);
      done();
    });
    OP_REQUIRES_OK_ASYNC(ctx, started, done);
  }

 private:
  static void RunInterruptibly(const std::shared_ptr<CallsOfRun>& calls,
                               const std::shared_ptr<InterruptibleCall>& call) {
    const int64_t number = calls->Add([call](const absl::Status& error) { call->GiveUp(error); });
    const absl::Status started = RunBesideTensorFlow([calls, call, number] {
      call->Run();
      calls->Remove(number);
    });
    if (started.ok()) return;
    calls->Remove(number);
    call->GiveUp(started);
  }

  // Runs in a separate context, whose status is not the one to show the user.
  void Run(tensorflow::OpKernelContext* ctx) {
    InnerContext inner(*ctx, stock_.get());
    inner.HandOver(
        ctx, RunStock(stock_.get(), token_, UnsharedInputs(*ctx), StartedRunOf(*ctx), inner.get()));
  }

  std::string token_;
  std::shared_ptr<tensorflow::OpKernel> stock_;
};

#define HOSTCALL_REGISTER(op) \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU).Label("hostcall"), HostScriptOp)
HOSTCALL_REGISTER("EagerPyFunc");
HOSTCALL_REGISTER("PyFunc");
HOSTCALL_REGISTER("PyFuncStateless");
#undef HOSTCALL_REGISTER

}  // namespace

void DefineHostScriptOp(nanobind::module_& m) {
  m.def(
      "unshared_inputs", [] { return unshared_inputs; },
      "Return the inputs, by their bits, whose memory belongs only to the op that this thread has "
      "begun to run.");
  m.def(
      "run_of_op", [] { return run_of_op; },
      "Return the number of the run of the op that this thread has begun to run, for "
      "hostcall_runtime._runs.bind_to_run.");
  m.def(
      "context_handle",
      [](nanobind::handle module, nanobind::handle) {
        nanobind::object context = module.attr("_context");
        if (context.is_none() || context.attr("_context_handle").is_none()) {
          module.attr("ensure_initialized")();  // once in a process
          context = module.attr("_context");
        }
        return context.attr("_context_handle");
      },
      nanobind::arg("module"), nanobind::arg("registry"),
      "Return the handle of TensorFlow's eager context, without running Python code. Take the "
      "module that keeps the context, and the registry of script ops, whose property this is.");
  m.def(
      "set_refusal", [](nanobind::object function) { refusal = std::move(function); },
      nanobind::arg("refusal"),
      "Set the function that returns (status code, message) of why a nested call cannot be made, "
      "or None, by its token and by what is wrong with the thread's stack.");
  m.def(
      "set_token_on_host", [](nanobind::object function) { token_on_host = std::move(function); },
      nanobind::arg("function"),
      "Set the function that returns, for the serialized NodeDef of a script op on the host, the "
      "token of the entry that the stock kernel calls.");
}

}  // namespace hostcall
