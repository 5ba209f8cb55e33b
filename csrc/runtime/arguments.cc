#include "arguments.h"

#include <algorithm>
#include <utility>

#include "cuda_device.h"
#include "failure.h"
#include "host_api.h"
#include "loans.h"
#include "registry.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// Returns null if the framework has no such tensor.
PyObject* ToTensor(const Buffer& buffer) {
  if (buffer.true_dims != nullptr || buffer.visible_dtype != buffer.dtype) return nullptr;
  return UntilExit([&] {
    return Host().tensors.make(static_cast<int>(buffer.dtype), buffer.dims.begin(),
                               static_cast<int>(buffer.dims.size()), buffer.data);
  });
}

// Converts values with another memory layout than a tensor's.
nb::handle ConvertToTensor(const Buffer& buffer, nb::handle target, DeferredDecrefScope& decrefs) {
  static PyObject* const name = PyUnicode_InternFromString("to_tensor");
  return decrefs.Call(decrefs.Attribute(target, name), decrefs.Defer(ToNumpy(buffer)));
}

}  // namespace

Arguments::Arguments(const HostCall& call, nb::handle target, DeferredDecrefScope& decrefs)
    : size_(call.operands.size()) {
  // One slot before them lets a bound method pass its object without a copy; one after them is for
  // `out`.
  slots_.resize(size_ + 2);
  MakeInputs(call, target, decrefs);
  if (call.convention().takes_out && !call.results.empty()) MakeOut(call, decrefs);
}

Arguments::~Arguments() = default;

void Arguments::MakeInputs(const HostCall& call, nb::handle target, DeferredDecrefScope& decrefs) {
  static PyObject* const name = PyUnicode_InternFromString("empty");
  const Convention& convention = call.convention();
  if (convention.on_device) loans_ = std::make_unique<Loans>();
  nb::handle empty;
  if (convention.allocates) empty = decrefs.Attribute(target, name);
  for (size_t i = 0; i < size_; ++i) {
    const Buffer& operand = call.operands[i];
    nb::handle argument;
    if (convention.takes_tensors) {
      PyObject* tensor = ToTensor(operand);
      argument =
          tensor != nullptr ? decrefs.Defer(tensor) : ConvertToTensor(operand, target, decrefs);
    } else if (convention.on_device) {
      const Place place = call.device == nullptr ? Place() : call.device->place();
      argument = decrefs.Defer(loans_->Lend(operand, place, call.shares_memory()));
    } else if (convention.borrows && operand.dims.size() > 0) {
      argument = decrefs.Defer(Borrow(operand, call.shares_memory()));
      if (call.shares_memory()) borrowed_.push_back(argument);
    } else if (convention.allocates) {
      argument = decrefs.Defer(ToNumpy(operand, empty));
    } else {
      argument = decrefs.Defer(ToNumpy(operand));
    }
    slots_[i + 1] = argument.ptr();
  }
}

void Arguments::MakeOut(const HostCall& call, DeferredDecrefScope& decrefs) {
  for (const Buffer& result : call.results) {
    if (result.sizes != nullptr) {
      throw Failure::InvalidArgument("hostcall: `out` has no room for a result of bounded size.");
    }
    OutArray made = MakeOutArray(result, call.shares_memory());
    outs_.push_back({decrefs.Defer(std::move(made.array)), made.borrowed});
  }
  out_ = outs_[0].array;
  if (outs_.size() > 1) {
    out_ = decrefs.Defer(PyTuple_New(static_cast<Py_ssize_t>(outs_.size())));
    for (size_t i = 0; i < outs_.size(); ++i) {
      PyTuple_SET_ITEM(out_.ptr(), static_cast<Py_ssize_t>(i), outs_[i].array.inc_ref().ptr());
    }
  }
  slots_[size_ + 1] = out_.ptr();
}

nb::handle Arguments::Call(nb::handle function, DeferredDecrefScope& decrefs) const {
  // Passes `out` by keyword, like NumPy's functions. Leaked like all that holds Python objects.
  static PyObject* const names = PyTuple_Pack(1, PyUnicode_InternFromString("out"));
  return decrefs.Defer(UntilExit([&] {
    return PyObject_Vectorcall(function.ptr(), slots_.data() + 1,
                               size_ | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               out_.is_valid() ? names : nullptr);
  }));
}

void Arguments::StoreOut(nb::handle returned, const HostCall& call, const Who& who) const {
  if (!IsOut(returned)) {
    throw Failure::InvalidArgument(
        who() +
        " returns a value that is not `out`, which it was to write its results into: it is "
        "declared with out=True. Write out[...] = value and return nothing, or remove "
        "out=True.");
  }
  const ProgramMemory memory(call.abandonment);
  for (size_t i = 0; i < outs_.size(); ++i) {
    if (outs_[i].borrowed) continue;
    CheckArray(outs_[i].array, DeclaredAs(call.results[i]), {i, call.results.size()}, who);
    CopyOut(outs_[i].array, call.results[i]);
  }
}

// Returns true also for the arrays themselves: like NumPy's functions, it may return its `out`.
bool Arguments::IsOut(nb::handle returned) const {
  if (returned.is_none() || returned.is(out_)) return true;
  if (!nb::isinstance<nb::tuple>(returned) && !nb::isinstance<nb::list>(returned)) return false;
  const nb::object items = nb::steal(PySequence_Tuple(returned.ptr()));
  if (!items.is_valid()) throw nb::python_error();
  return nb::len(items) == outs_.size() &&
         std::equal(outs_.begin(), outs_.end(), nb::borrow<nb::tuple>(items).begin(),
                    [](const Out& out, nb::handle item) { return item.is(out.array); });
}

bool Arguments::AnyIsStillReferenced() const {
  if (loans_ != nullptr && loans_->AnyIsUsed()) return true;
  if (!AnyIsReferredTo()) return false;
  // A cycle that the function has left behind has no user any more.
  CollectGarbage();
  return AnyIsReferredTo();
}

bool Arguments::AnyIsReferredTo() const {
  const auto referred = [](nb::handle object, Py_ssize_t own) {
    return Py_REFCNT(object.ptr()) > own;
  };
  if (std::any_of(borrowed_.begin(), borrowed_.end(),
                  [&](nb::handle a) { return referred(a, 1); })) {
    return true;
  }
  const bool in_tuple = outs_.size() > 1;
  if (in_tuple && referred(out_, 1)) return true;
  return std::any_of(outs_.begin(), outs_.end(),
                     [&](const Out& out) { return referred(out.array, in_tuple ? 2 : 1); });
}

}  // namespace hostcall
