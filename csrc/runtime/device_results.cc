// Results that are arrays of other libraries, which stay on a device or come by DLPack.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "call.h"
#include "cuda_device.h"
#include "failure.h"
#include "gil.h"
#include "module.h"
#include "numpy.h"
#include "results.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// The array in a DLPack capsule. It keeps the memory.
class ForeignArray {
 public:
  explicit ForeignArray(const nb::capsule& capsule) : array_(nb::cast<Array>(capsule)) {}

  std::pair<int, int> device() const { return {array_.device_type(), array_.device_id()}; }

  std::tuple<int, int, int> dtype() const {
    const nb::dlpack::dtype dtype = array_.dtype();
    return {dtype.code, dtype.bits, dtype.lanes};
  }

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(array_.data()); }

  nb::tuple shape() const { return TupleOf({array_.shape_ptr(), array_.ndim()}); }
  nb::tuple strides() const { return TupleOf({array_.stride_ptr(), array_.ndim()}); }

  // Returns a read-only array over the same memory, which `self` keeps.
  static nb::object View(const nb::object& self, nb::object descr) {
    const Array& array = nb::cast<const ForeignArray&>(self).array_;
    const npy_intp size = PyDataType_ELSIZE(AsDescr(descr));
    std::vector<npy_intp> strides(array.ndim());
    for (size_t i = 0; i < strides.size(); ++i) strides[i] = array.stride(i) * size;
    nb::object view =
        ArrayOver(const_cast<void*>(array.data()), std::move(descr),
                  {array.shape_ptr(), array.ndim()}, strides.data(), /*flags=*/0, self);
    PyArray_UpdateFlags(AsArray(view), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    return view;
  }

 private:
  using Array = nb::ndarray<nb::ro>;

  const Array array_;
};

// Functions of hostcall_runtime._device_arrays. Leaked like everything that holds Python objects.
nb::object& arrays_of_host = *new nb::object();
nb::object& arrays_of_device = *new nb::object();

// Returns the declarations of the results, for Python.
nb::list Described(const std::vector<DeclaredResult>& declared) {
  nb::list described;
  for (const DeclaredResult& one : declared) {
    nb::list bounded;
    for (const bool is_bounded : one.bounded) bounded.append(is_bounded);
    described.append(
        nb::make_tuple(one.dtype->descr, one.dtype->name, TupleOf(one.dims), nb::tuple(bounded)));
  }
  return described;
}

// The storing of one call's results.
class Storing {
 public:
  Storing(const HostCall& call, const Who& who, DeferredDecrefScope& decrefs)
      : call_(call), who_(who), decrefs_(decrefs) {
    for (const Buffer& result : call.results) declared_.push_back(DeclaredAs(result));
  }

  void Store(nb::handle returned) {
    const Place& place = call_.device->place();
    nb::handle found = decrefs_.Call(arrays_of_device, returned, Described(declared_),
                                     nb::cast(who_()), nb::cast(place.id), nb::cast(place.stream));
    for (nb::handle stream : nb::object(found[1])) streams_.push_back(nb::cast<uintptr_t>(stream));
    const nb::object values = found[0];  // one for each result
    for (size_t i = 0; i < call_.results.size(); ++i) Add(i, nb::object(values[i]));
    StoreArrays();
    WithoutGil([&] { call_.device->Store(copies_, streams_); });
  }

 private:
  struct OnHost {
    size_t index;
    nb::handle array;
  };

  // Adds a value. One on the device is a tuple of its address, its size in bytes and its shape.
  void Add(size_t index, nb::handle value) {
    if (!nb::isinstance<nb::tuple>(value)) {
      nb::handle array = decrefs_.Defer(ToArray(value, *declared_[index].dtype, Of(index), who_));
      CheckArray(array, declared_[index], Of(index), who_);
      on_host_.push_back({index, array});
      return;
    }
    const Buffer& result = call_.results[index];
    const auto* from = reinterpret_cast<const void*>(nb::cast<uintptr_t>(value[0]));
    const auto size = nb::cast<size_t>(value[1]);
    if (size > 0) CheckOwner(from, index);
    if (size > 0) copies_.push_back({result.data, from, size});
    for (size_t i = 0; result.sizes != nullptr && i < result.dims.size(); ++i) {
      if (result.sizes[i] != nullptr) *result.sizes[i] = nb::cast<int32_t>(value[2][i]);
    }
  }

  Which Of(size_t index) const { return {index, declared_.size()}; }

  void CheckOwner(const void* memory, size_t index) {
    bool owns = false;
    WithoutGil([&] { owns = call_.device->Owns(memory); });
    if (owns) return;
    throw Failure::InvalidArgument(
        std::to_string(index) + "-th value returned by " + who_() +
        " does not lie on the device of the program, CUDA device " +
        std::to_string(call_.device->place().id) +
        ". Copy it there in the function, or return an array of NumPy's.");
  }

  void StoreArrays() {
    Buffers staged;
    for (const OnHost& one : on_host_) staged.push_back(call_.results[one.index]);
    WithoutGil([&] { call_.device->Reserve(staged); });
    for (size_t i = 0; i < on_host_.size(); ++i) {
      const auto& [index, array] = on_host_[i];
      // Checked again: other threads had the GIL, and may hold the array.
      CheckArray(array, declared_[index], Of(index), who_);
      CopyOut(array, staged[i]);
    }
  }

  const HostCall& call_;
  const Who& who_;
  DeferredDecrefScope& decrefs_;
  std::vector<DeclaredResult> declared_;
  std::vector<OnHost> on_host_;
  std::vector<CudaDevice::Copy> copies_;
  std::vector<uintptr_t> streams_;
};

}  // namespace

nb::handle WithArraysOfHost(nb::handle returned, const Who& who, DeferredDecrefScope& decrefs) {
  if (PyArray_CheckExact(returned.ptr())) return returned;
  return decrefs.Call(arrays_of_host, returned, nb::cast(who()));
}

void StoreOnDevice(nb::handle returned, const HostCall& call, const Who& who,
                   DeferredDecrefScope& decrefs) {
  Storing(call, who, decrefs).Store(returned);
}

void DefineDeviceResults(nb::module_& m) {
  nb::class_<ForeignArray>(m, "ForeignArray",
                           "The facts of a DLPack capsule, which this object consumes.")
      .def(nb::init<const nb::capsule&>(), nb::arg("capsule"))
      .def_prop_ro("device", &ForeignArray::device, "The device's type and number.")
      .def_prop_ro("dtype", &ForeignArray::dtype, "DLPack's code, bits and lanes.")
      .def_prop_ro("address", &ForeignArray::address)
      .def_prop_ro("shape", &ForeignArray::shape)
      .def_prop_ro("strides", &ForeignArray::strides, "The strides in elements.")
      .def(
          "view",
          [](const nb::object& self, nb::object dtype) {
            return ForeignArray::View(self, std::move(dtype));
          },
          nb::arg("dtype"), "Return a read-only array over the same memory, which is the host's.");
  m.def(
      "set_foreign_arrays",
      [](nb::object of_host, nb::object of_device) {
        arrays_of_host = std::move(of_host);
        arrays_of_device = std::move(of_device);
      },
      nb::arg("of_host"), nb::arg("of_device"),
      "Set the functions that find the memory of returned arrays; see "
      "hostcall_runtime._device_arrays.");
}

}  // namespace hostcall
