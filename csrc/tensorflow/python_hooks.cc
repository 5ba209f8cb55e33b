#include "python_hooks.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <tuple>
#include <utility>

#include "functions/call_kernel.h"
#include "functions/fallback_kernel.h"
#include "runtime/deferred_decref.h"
#include "runtime/gil.h"
#include "runtime/text.h"
#include "tensorflow/core/framework/tensor.pb.h"

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

// Calls a hook with the tuple that `make_arguments` makes, and has `read` read the answer.
template <typename Make, typename Read>
auto CallPython(const char* name, Make&& make_arguments, Read&& read)
    -> absl::StatusOr<decltype(read(nb::handle()))> {
  if (!PythonIsRunning()) {
    return absl::FailedPreconditionError(
        "hostcall: a function with Python callbacks was compiled while the interpreter shut down.");
  }
  GilHold gil;
  DeferredDecrefScope decrefs;
  try {
    const nb::object hook = Hooks()[name];
    nb::handle arguments = decrefs.Defer(make_arguments());
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
  const auto arguments = [&]() -> nb::object { return nb::make_tuple(function); };
  CallPython(hook, arguments, [](nb::handle) { return true; }).IgnoreError();
}

nb::bytes Serialize(const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  return nb::bytes(bytes.data(), bytes.size());
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
    throw nb::value_error("hostcall: this is no NodeDef");
  }
  return node;
}

}  // namespace

bool IsEnabled() { return enabled.load(std::memory_order_relaxed); }

absl::StatusOr<LoweredCall> LowerScriptOp(const tensorflow::NodeDef& node,
                                          const std::vector<Operand>& operands) {
  const auto arguments = [&]() -> nb::object {
    std::vector<std::tuple<int, std::vector<int64_t>, std::vector<bool>>> specs;
    for (const Operand& operand : operands) {
      specs.emplace_back(operand.dtype, operand.shape.dims, operand.shape.dynamic);
    }
    return nb::make_tuple(Serialize(node), specs);
  };
  return CallPython("lower", arguments, [](nb::handle answer) {
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
  });
}

absl::StatusOr<std::optional<std::vector<tensorflow::Tensor>>> EvaluateScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::Tensor>& inputs) {
  using Results = std::optional<std::vector<tensorflow::Tensor>>;
  const auto arguments = [&]() -> nb::object {
    nb::list values;
    for (const tensorflow::Tensor& input : inputs) {
      tensorflow::TensorProto proto;
      input.AsProtoTensorContent(&proto);
      values.append(Serialize(proto));
    }
    return nb::make_tuple(Serialize(node), values);
  };
  return CallPython("evaluate", arguments, [](nb::handle answer) -> Results {
    const auto values = nb::cast<std::optional<std::vector<nb::bytes>>>(answer);
    if (!values.has_value()) return std::nullopt;
    std::vector<tensorflow::Tensor> results;
    for (const nb::bytes& value : *values) results.push_back(ParseTensor(value));
    return results;
  });
}

absl::StatusOr<RewrittenFunction> RewriteFunction(const std::string& library,
                                                  const std::string& function, const Where& where,
                                                  const std::string& refusal, bool whole) {
  const auto arguments = [&]() -> nb::object {
    // XLA's message quotes its input, which need not be UTF-8.
    return nb::make_tuple(nb::bytes(library.data(), library.size()), function, where.device,
                          where.others, nb::bytes(refusal.data(), refusal.size()), whole);
  };
  return CallPython("rewrite", arguments, ToRewritten);
}

absl::StatusOr<std::vector<MissingKernel>> MissingKernels(const std::string& library,
                                                          const std::string& function,
                                                          const std::string& device) {
  const auto arguments = [&]() -> nb::object {
    return nb::make_tuple(nb::bytes(library.data(), library.size()), function, device);
  };
  return CallPython("missing_kernels", arguments, [](nb::handle answer) {
    std::vector<MissingKernel> found;
    for (nb::handle missing : answer) {
      found.push_back({Field<std::string>(missing, "function"), Field<std::string>(missing, "node"),
                       Field<std::string>(missing, "op")});
    }
    return found;
  });
}

absl::StatusOr<RewrittenFunction> PlainFunction(const std::string& library,
                                                const std::string& function, const Where& where) {
  const auto arguments = [&]() -> nb::object {
    return nb::make_tuple(nb::bytes(library.data(), library.size()), function, where.device,
                          where.others);
  };
  return CallPython("plain", arguments, ToRewritten);
}

absl::StatusOr<std::vector<tensorflow::PartialTensorShape>> ShapesOfScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::PartialTensorShape>& inputs) {
  using Sizes = std::optional<std::vector<int64_t>>;
  const auto arguments = [&]() -> nb::object {
    std::vector<Sizes> shapes;
    for (const auto& input : inputs) {
      Sizes& sizes = shapes.emplace_back();
      if (input.unknown_rank()) continue;
      const auto known = input.dim_sizes();
      sizes.emplace(known.begin(), known.end());
    }
    return nb::make_tuple(Serialize(node), shapes);
  };
  return CallPython("shapes_in_region", arguments, [](nb::handle answer) {
    std::vector<tensorflow::PartialTensorShape> shapes;
    for (const Sizes& sizes : nb::cast<std::vector<Sizes>>(answer)) {
      shapes.push_back(sizes.has_value() ? tensorflow::PartialTensorShape(*sizes)
                                         : tensorflow::PartialTensorShape());
    }
    return shapes;
  });
}

void Announce(const std::string& function) { Tell("announce", function); }

void TellOutgrown(const std::string& function) { Tell("tell_outgrown", function); }

void DefinePythonHooks(nb::module_& m) {
  m.def(
      "set_hooks", [](const nb::kwargs& hooks) { Hooks().update(hooks); },
      "Sets functions of Python's: `lower` lowers a script op, `evaluate` calls its function when "
      "XLA compiles, `rewrite` rewrites a must-compile function, and `announce` logs the outcome. "
      "`missing_kernels` finds the nodes of a function that XLA has no kernels for. `plain` "
      "rewrites a cluster for TensorFlow's kernels, and `tell_outgrown` hears of each cluster that "
      "is compiled no more. `shapes_in_region` tells the shapes of the results of a script op in a "
      "region.");
  m.def(
      "has_xla_kernel",
      [](const nb::bytes& node, const std::string& device_type) {
        return HasXlaKernel(ParseNode(node), device_type);
      },
      nb::arg("node"), nb::arg("device_type") = "CPU",
      "Whether XLA can compile an op for devices of a type, given as a serialized NodeDef.");
  m.def(
      "constant_operands", [](const nb::bytes& node) { return ConstantOperands(ParseNode(node)); },
      nb::arg("node"), "The positions of the operands that XLA wants to know when it compiles.");
  m.def(
      "set_enabled", [](bool value) { enabled = value; }, nb::arg("value"),
      "Switches the kernels and the rewriting on or off.");
}

}  // namespace hostcall
