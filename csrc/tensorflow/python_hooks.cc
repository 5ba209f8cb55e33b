#include "python_hooks.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <tuple>
#include <type_traits>

#include "functions/call_kernel.h"
#include "functions/fallback_kernel.h"
#include "module.h"
#include "runtime/gil.h"
#include "runtime/text.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/graph/graph_debug_info_builder.h"
#include "tensorflow/core/util/util.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

std::atomic<bool> enabled{false};

// The functions of `set_hooks`, by name. Leaked: Python objects that must not be released after the
// interpreter is gone.
nb::dict& Hooks() {
  static auto* hooks = new nb::dict();
  return *hooks;
}

// Returns a field of an answer, which is a named tuple of Python's.
template <typename T>
T Field(nb::handle answer, const char* name) {
  return nb::cast<T>(nb::object(answer.attr(name)));
}

// Converts an exception. The text of a LoweringError is a message for the user. Any other exception
// is our mistake, and a report about it needs the traceback.
absl::Status ToStatus(nb::python_error& error) {
  if (nb::hasattr(error.value(), "hostcall_message")) {
    if (nb::hasattr(error.value(), "hostcall_refusal")) return RefusalOfOurs(Text(error.value()));
    return absl::InvalidArgumentError(Text(error.value()));
  }
  return absl::InternalError(UntilExit([&error] { return error.what(); }));
}

nb::bytes Serialize(const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  return nb::bytes(bytes.data(), bytes.size());
}

// Converts an argument of a hook: a message to its bytes, a function to what it returns.
template <typename T>
nb::object ToPython(const T& argument) {
  if constexpr (std::is_base_of_v<google::protobuf::MessageLite, T>) {
    return Serialize(argument);
  } else if constexpr (std::is_invocable_v<const T&>) {
    return argument();
  } else {
    return nb::cast(argument);
  }
}

// Makes an argument of bytes that need not be UTF-8, once there is a GIL.
auto Bytes(const std::string& bytes) {
  return [&bytes] { return nb::bytes(bytes.data(), bytes.size()); };
}

// Calls a hook, and has `read` read the answer.
template <typename Read, typename... Args>
auto CallPython(const char* name, Read&& read, const Args&... given)
    -> absl::StatusOr<decltype(read(nb::handle()))> {
  if (!PythonIsRunning()) {
    return absl::FailedPreconditionError(
        "hostcall: a function with Python callbacks was compiled while the interpreter shut down.");
  }
  GilHold gil;
  DeferredDecrefScope decrefs;
  try {
    const nb::object hook = Hooks()[name];
    nb::handle arguments = decrefs.Defer(nb::make_tuple(ToPython(given)...));
    return read(
        decrefs.Defer(UntilExit([&] { return PyObject_CallObject(hook.ptr(), arguments.ptr()); })));
  } catch (nb::python_error& error) {
    decrefs.Defer(nb::borrow(error.value()));  // its frames hold values of the user's functions
    return ToStatus(error);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

// Tells a hook of a function. Ignores errors: no call depends on the answer.
void Tell(const char* hook, const std::string& function) {
  CallPython(hook, [](nb::handle) { return true; }, function).IgnoreError();
}

tensorflow::Tensor ParseTensor(const nb::bytes& bytes) {
  tensorflow::TensorProto proto;
  tensorflow::Tensor tensor;
  if (!proto.ParseFromArray(bytes.c_str(), static_cast<int>(bytes.size())) ||
      !tensor.FromProto(proto)) {
    throw nb::value_error("hostcall: a result that was evaluated does not parse");
  }
  return tensor;
}

RewrittenFunction ToRewritten(nb::handle answer) {
  const auto library = Field<nb::bytes>(answer, "library");
  return {std::string(library.c_str(), library.size()),
          Field<std::string>(answer, "name"),
          Field<bool>(answer, "partitioned"),
          Field<std::vector<std::string>>(answer, "regions"),
          Field<bool>(answer, "added"),
          Field<bool>(answer, "sizes_vary")};
}

tensorflow::NodeDef ParseNode(const nb::bytes& bytes) {
  tensorflow::NodeDef node;
  if (!node.ParseFromArray(bytes.c_str(), static_cast<int>(bytes.size()))) {
    throw nb::value_error("hostcall: this is not a NodeDef");
  }
  return node;
}

thread_local const tensorflow::FunctionLibraryDefinition* rewritten_library = nullptr;
}  // namespace

RewriteScope::RewriteScope(const tensorflow::FunctionLibraryDefinition& library)
    : outer_(rewritten_library) {
  rewritten_library = &library;
}

RewriteScope::~RewriteScope() { rewritten_library = outer_; }

std::string TraceOf(const std::string& function, const std::string& node,
                    const tensorflow::FunctionLibraryDefinition& library) {
  const auto record = library.FindRecord(function);
  if (record == nullptr) return "";
  const auto trace = record->stack_traces().find(node);
  if (trace == record->stack_traces().end() || trace->second == nullptr) return "";
  tensorflow::AbstractStackTrace::TracePrintingOptions options;
  options.drop_internal_frames = true;
  return trace->second->ToString(options);
}

bool IsEnabled() { return enabled.load(std::memory_order_relaxed); }

absl::StatusOr<LoweredCall> LowerScriptOp(const tensorflow::NodeDef& node,
                                          const std::vector<Operand>& operands) {
  std::vector<std::tuple<int, std::vector<int64_t>, std::vector<bool>>> specs;
  for (const Operand& operand : operands) {
    specs.emplace_back(operand.dtype, operand.shape.dims, operand.shape.dynamic);
  }
  const auto read = [](nb::handle answer) {
    LoweredCall lowered;
    lowered.target = Field<std::string>(answer, "target");
    lowered.attributes = Field<std::string>(answer, "attributes");
    lowered.has_side_effect = Field<bool>(answer, "has_side_effect");
    lowered.operands = Field<std::vector<int64_t>>(answer, "operands");
    lowered.foldable = Field<bool>(answer, "foldable");
    for (nb::handle shape : Field<nb::list>(answer, "results")) {
      lowered.results.push_back(
          {Field<std::vector<int64_t>>(shape, "dims"), Field<std::vector<bool>>(shape, "dynamic")});
    }
    return lowered;
  };
  return CallPython("lower", read, node, specs);
}

absl::StatusOr<std::optional<std::vector<tensorflow::Tensor>>> EvaluateScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::Tensor>& inputs) {
  using Results = std::optional<std::vector<tensorflow::Tensor>>;
  const auto values = [&] {
    nb::list values;
    for (const tensorflow::Tensor& input : inputs) {
      tensorflow::TensorProto proto;
      input.AsProtoTensorContent(&proto);
      values.append(Serialize(proto));
    }
    return values;
  };
  const auto read = [](nb::handle answer) -> Results {
    const auto values = nb::cast<std::optional<std::vector<nb::bytes>>>(answer);
    if (!values.has_value()) return std::nullopt;
    std::vector<tensorflow::Tensor> results;
    for (const nb::bytes& value : *values) results.push_back(ParseTensor(value));
    return results;
  };
  return CallPython("evaluate", read, node, values);
}

absl::StatusOr<RewrittenFunction> RewriteFunction(const std::string& library,
                                                  const std::string& function, const Where& where,
                                                  const std::string& refusal, bool whole) {
  // XLA's message quotes its input, which need not be UTF-8.
  return CallPython("rewrite", ToRewritten, Bytes(library), function, where.device, where.others,
                    Bytes(refusal), whole);
}

absl::StatusOr<std::vector<MissingKernel>> MissingKernels(const std::string& library,
                                                          const std::string& function,
                                                          const std::string& device) {
  const auto read = [](nb::handle answer) {
    std::vector<MissingKernel> found;
    for (nb::handle missing : answer) {
      found.push_back({Field<std::string>(missing, "function"), Field<std::string>(missing, "node"),
                       Field<std::string>(missing, "op")});
    }
    return found;
  };
  return CallPython("missing_kernels", read, Bytes(library), function, device);
}

absl::StatusOr<RewrittenFunction> PlainFunction(const std::string& library,
                                                const std::string& function, const Where& where) {
  return CallPython("plain", ToRewritten, Bytes(library), function, where.device, where.others);
}

absl::StatusOr<std::vector<tensorflow::PartialTensorShape>> ShapesOfScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::PartialTensorShape>& inputs) {
  using Sizes = std::optional<std::vector<int64_t>>;
  std::vector<Sizes> given;
  for (const auto& input : inputs) {
    Sizes& sizes = given.emplace_back();
    if (input.unknown_rank()) continue;
    const auto known = input.dim_sizes();
    sizes.emplace(known.begin(), known.end());
  }
  const auto read = [](nb::handle answer) {
    std::vector<tensorflow::PartialTensorShape> shapes;
    for (const Sizes& sizes : nb::cast<std::vector<Sizes>>(answer)) {
      shapes.push_back(sizes.has_value() ? tensorflow::PartialTensorShape(*sizes)
                                         : tensorflow::PartialTensorShape());
    }
    return shapes;
  };
  return CallPython("shapes_in_region", read, node, given);
}

void Announce(const std::string& function) { Tell("announce", function); }

void TellOutgrown(const std::string& function) { Tell("tell_outgrown", function); }

void DefinePythonHooks(nb::module_& m) {
  m.def(
      "set_hooks", [](const nb::kwargs& hooks) { Hooks().update(hooks); },
      "Set Python's functions, by the names by which python_hooks.cc calls them.");
  m.def(
      "has_xla_kernel",
      [](const nb::bytes& node, const std::string& device_type) {
        return HasXlaKernel(ParseNode(node), device_type);
      },
      nb::arg("node"), nb::arg("device_type") = "CPU",
      "Return whether XLA can compile an op, a serialized NodeDef, for devices of a type.");
  m.def(
      "has_kernel",
      [](const nb::bytes& node) {
        return HasKernel(ParseNode(node), tensorflow::DeviceType(tensorflow::DEVICE_CPU));
      },
      nb::arg("node"), "Return whether TensorFlow has a CPU kernel for an op.");
  m.def(
      "has_onednn_kernels",
      [](int dtype) {
        return tensorflow::IsMKLEnabled() && tensorflow::IsDataTypeSupportedByOneDNNOnThisCPU(
                                                 static_cast<tensorflow::DataType>(dtype));
      },
      nb::arg("dtype"),
      "Return whether TensorFlow computes a dtype, a DataType's number, by oneDNN where that has a "
      "kernel: on this processor, as the process was started.");
  m.def(
      "constant_operands", [](const nb::bytes& node) { return ConstantOperands(ParseNode(node)); },
      nb::arg("node"),
      "Return the positions of the operands that XLA wants to know when it compiles.");
  m.def(
      "trace_of",
      [](const std::string& function, const std::string& node) {
        return rewritten_library == nullptr ? "" : TraceOf(function, node, *rewritten_library);
      },
      nb::arg("function"), nb::arg("node"),
      "Return the frames that made a node, in TensorFlow's format, while Python rewrites the "
      "functions of its library; \"\" if they are unknown.");
  m.def(
      "set_enabled", [](bool value) { enabled = value; }, nb::arg("value"),
      "Switch the kernels and the rewriting on or off.");
}

}  // namespace hostcall
