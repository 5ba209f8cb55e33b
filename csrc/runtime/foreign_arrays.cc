// Arrays of other libraries, which come by DLPack.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "module.h"
#include "numpy.h"

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
    const auto rank = array.ndim();
    const npy_intp size = PyDataType_ELSIZE(AsDescr(descr));
    std::vector<npy_intp> shape(array.shape_ptr(), array.shape_ptr() + rank);
    std::vector<npy_intp> strides(rank);
    for (size_t i = 0; i < rank; ++i) strides[i] = array.stride(i) * size;
    nb::object view = Checked(PyArray_NewFromDescr(
        &PyArray_Type, AsDescr(descr.release()), static_cast<int>(rank), shape.data(),
        strides.data(), const_cast<void*>(array.data()), /*flags=*/0, nullptr));
    nb::object base = self;
    if (PyArray_SetBaseObject(AsArray(view), base.release().ptr()) < 0) throw nb::python_error();
    PyArray_UpdateFlags(AsArray(view), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    return view;
  }

 private:
  using Array = nb::ndarray<nb::ro>;

  const Array array_;
};

}  // namespace

void DefineForeignArrays(nb::module_& m) {
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
}

}  // namespace hostcall
