#include "arrays.h"

#include <cstring>
#include <utility>

#include "array_memory.h"
#include "capsules.h"
#include "failure.h"
#include "gil.h"
#include "host_api.h"
#include "numpy.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// Copying fewer bytes than this costs less than keeping the memory.
constexpr int64_t kWorthBorrowing = 4096;

// Like `LARGE` of _shared_memory.py: smaller arguments are pickled.
constexpr int64_t kWorthAllocating = 1 << 18;

// Ends a hold of the provider that made it, even if another one is set by now.
void EndHold(PyObject* capsule) {
  const auto* api = static_cast<const BufferProviderApi*>(PyCapsule_GetContext(capsule));
  api->release(PyCapsule_GetPointer(capsule, capsules::kBufferHold));
}

// Returns a view that keeps its memory; a null object if that is impossible.
nb::object BorrowedView(const Buffer& buffer, Dims true_dims, int flags) {
  const int64_t size = SizeInBytes(buffer);
  if (size < kWorthBorrowing || buffer.visible_dtype != buffer.dtype) return nb::object();
  const BufferProviderApi* api = &Host().buffers;
  void* hold = api->hold == nullptr ? nullptr : api->hold(buffer.data, static_cast<size_t>(size));
  if (hold == nullptr) return nb::object();
  nb::object owner = nb::steal(PyCapsule_New(hold, capsules::kBufferHold, nullptr));
  if (!owner.is_valid()) {
    api->release(hold);
    throw nb::python_error();
  }
  PyCapsule_SetContext(owner.ptr(), const_cast<BufferProviderApi*>(api));
  PyCapsule_SetDestructor(owner.ptr(), &EndHold);
  return View(buffer, true_dims, flags, std::move(owner));
}

}  // namespace

nb::tuple TupleOf(Dims dims) {
  nb::list items;
  for (const int64_t dim : dims) items.append(dim);
  return nb::tuple(items);
}

nb::object ArrayOver(void* data, nb::object descr, Dims dims, const npy_intp* strides, int flags,
                     nb::object base) {
  nb::object array = Checked(PyArray_NewFromDescr(
      &PyArray_Type, AsDescr(descr.release()), static_cast<int>(dims.size()),
      const_cast<npy_intp*>(dims.begin()), const_cast<npy_intp*>(strides), data, flags, nullptr));
  if (base.is_valid() && PyArray_SetBaseObject(AsArray(array), base.release().ptr()) < 0) {
    throw nb::python_error();
  }
  return array;
}

nb::object View(const Buffer& buffer, Dims true_dims, int flags, nb::object base) {
  nb::object descr = DtypeOf(buffer.dtype).descr;
  SmallVector<npy_intp, 8> strides;
  strides.resize(true_dims.size());
  npy_intp stride = PyDataType_ELSIZE(AsDescr(descr));
  for (size_t i = true_dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= buffer.dims[i];
  }
  return ArrayOver(buffer.data, std::move(descr), true_dims, strides.data(), flags,
                   std::move(base));
}

void CopyInto(nb::handle to, nb::handle from) {
  const int failed = UntilExit([&] { return PyArray_CopyInto(AsArray(to), AsArray(from)); });
  if (failed < 0) throw nb::python_error();
}

nb::object ToNumpy(const Buffer& buffer) {
  const Dims dims = buffer.shape();
  nb::object array = EmptyArray(dims, DtypeOf(buffer.dtype).descr);
  if (const auto size = static_cast<size_t>(PyArray_NBYTES(AsArray(array))); size > 0) {
    if (buffer.true_dims == nullptr) {
      std::memcpy(PyArray_DATA(AsArray(array)), buffer.data, size);
    } else {
      nb::object view = View(buffer, dims, /*flags=*/0);
      CopyInto(array, view);
    }
  }
  if (buffer.visible_dtype != buffer.dtype) {
    nb::object visible = DtypeOf(buffer.visible_dtype).descr;
    array = Checked(UntilExit(
        [&] { return PyArray_CastToType(AsArray(array), AsDescr(visible.release()), 0); }));
  }
  return dims.size() == 0
             ? Checked(PyArray_Return(reinterpret_cast<PyArrayObject*>(array.release().ptr())))
             : array;
}

nb::object ToNumpy(const Buffer& buffer, nb::handle empty) {
  const int64_t size = SizeInBytes(buffer);
  const bool is_plain = buffer.true_dims == nullptr && buffer.visible_dtype == buffer.dtype;
  if (size < kWorthAllocating || !is_plain) return ToNumpy(buffer);
  const nb::object shape = TupleOf(buffer.dims);
  nb::object dtype = DtypeOf(buffer.dtype).descr;
  nb::object array = Checked(UntilExit([&] {
    return PyObject_CallFunctionObjArgs(empty.ptr(), shape.ptr(), dtype.ptr(), nullptr);
  }));
  if (!PyArray_Check(array.ptr()) || !PyArray_ISCARRAY(AsArray(array)) ||
      PyArray_NBYTES(AsArray(array)) != size) {
    throw Failure::InvalidArgument("hostcall: the memory for an argument is not as asked for.");
  }
  std::memcpy(PyArray_DATA(AsArray(array)), buffer.data, static_cast<size_t>(size));
  return array;
}

nb::object Borrow(const Buffer& buffer, bool share) {
  const Dims dims = buffer.shape();
  if (share) {
    if (nb::object view = BorrowedView(buffer, dims, /*flags=*/0); view.is_valid()) return view;
  }
  nb::object copy = ToNumpy(buffer);
  PyArray_CLEARFLAGS(AsArray(copy), NPY_ARRAY_WRITEABLE);
  return copy;
}

OutArray MakeOutArray(const Buffer& result, bool share) {
  if (share) {
    nb::object view = BorrowedView(result, result.dims, NPY_ARRAY_WRITEABLE);
    if (view.is_valid()) {
      ExpectToFillResult(result.data, static_cast<size_t>(SizeInBytes(result)));
      return {std::move(view), true};
    }
  }
  return {EmptyArray(result.dims, DtypeOf(result.visible_dtype).descr), false};
}

int64_t SizeInBytes(const Buffer& buffer) {
  int64_t size = PyDataType_ELSIZE(AsDescr(DtypeOf(buffer.dtype).descr));
  for (const int64_t dim : buffer.dims) {
    if (dim < 0 || __builtin_mul_overflow(size, dim, &size)) {
      throw Failure::Malformed();
    }
  }
  return size;
}

}  // namespace hostcall
