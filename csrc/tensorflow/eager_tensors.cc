// EagerTensors for the runtime, and copies of arrays.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "c_api_pointers.h"
#include "module.h"
#include "runtime/gil.h"
#include "tensorflow/c/eager/c_api.h"
#include "tensorflow/c/tf_tensor.h"
#include "xla/ffi/api/c_api.h"

// From tensorflow/python/eager/pywrap_tensor.h, which the wheel lacks.
PyObject* EagerTensorFromHandle(TFE_TensorHandle* handle, bool is_packed);
TFE_TensorHandle* EagerTensor_Handle(const PyObject* object);
bool EagerTensor_CheckExact(const PyObject* object);

namespace nb = nanobind;

namespace hostcall {
namespace {

using TensorPtr = std::unique_ptr<TF_Tensor, DeleteBy<&TF_DeleteTensor>>;

// The dtypes of values that lie in memory as XLA has them, by XLA's numbers; 0 for others.
constexpr auto kDtypes = [] {
  std::array<TF_DataType, 32> dtypes{};
  dtypes[XLA_FFI_DataType_PRED] = TF_BOOL;
  dtypes[XLA_FFI_DataType_S8] = TF_INT8;
  dtypes[XLA_FFI_DataType_S16] = TF_INT16;
  dtypes[XLA_FFI_DataType_S32] = TF_INT32;
  dtypes[XLA_FFI_DataType_S64] = TF_INT64;
  dtypes[XLA_FFI_DataType_U8] = TF_UINT8;
  dtypes[XLA_FFI_DataType_U16] = TF_UINT16;
  dtypes[XLA_FFI_DataType_U32] = TF_UINT32;
  dtypes[XLA_FFI_DataType_U64] = TF_UINT64;
  dtypes[XLA_FFI_DataType_F16] = TF_HALF;
  dtypes[XLA_FFI_DataType_BF16] = TF_BFLOAT16;
  dtypes[XLA_FFI_DataType_F32] = TF_FLOAT;
  dtypes[XLA_FFI_DataType_F64] = TF_DOUBLE;
  dtypes[XLA_FFI_DataType_C64] = TF_COMPLEX64;
  dtypes[XLA_FFI_DataType_C128] = TF_COMPLEX128;
  return dtypes;
}();

TF_DataType TensorFlowDtype(int dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kDtypes.size() ? kDtypes[index] : TF_DataType{};
}

// Returns null, with no exception set, if the EagerTensor cannot be made.
PyObject* ToEager(const TensorPtr& tensor) {
  const StatusPtr status(TF_NewStatus());
  TFE_TensorHandle* handle = TFE_NewTensorHandle(tensor.get(), status.get());
  if (TF_GetCode(status.get()) != TF_OK) return nullptr;
  PyObject* made = EagerTensorFromHandle(handle, /*is_packed=*/false);
  if (made == nullptr) PyErr_Clear();
  return made;
}

// Allocates a tensor. A large one reuses the memory of earlier ones: the system has to map and
// clear new memory, which takes longer than the copy into it.
TensorPtr Allocate(TF_DataType type, const int64_t* dims, int rank, size_t size) {
  void* const data = runtime->take_memory(size);
  if (data == nullptr) return TensorPtr(TF_AllocateTensor(type, dims, rank, size));
  const auto give = [](void* data, size_t, void*) { runtime->give_memory(data); };
  return TensorPtr(TF_NewTensor(type, dims, rank, data, size, give, nullptr));
}

void Fill(const TensorPtr& tensor, const void* data, size_t size) {
  if (size > 0) std::memcpy(TF_TensorData(tensor.get()), data, size);
}

PyObject* Make(int dtype, const int64_t* dims, int rank, const void* data) {
  const TF_DataType type = TensorFlowDtype(dtype);
  if (type == 0) return nullptr;
  size_t size = TF_DataTypeSize(type);
  for (int i = 0; i < rank; ++i) size *= static_cast<size_t>(dims[i]);
  const TensorPtr tensor = Allocate(type, dims, rank, size);
  if (tensor == nullptr) return nullptr;
  Fill(tensor, data, size);
  return ToEager(tensor);
}

// View of an object's buffer; not held if the buffer is not in C order.
class BufferView {
 public:
  explicit BufferView(nb::handle object)
      : held_(PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS) == 0) {
    if (!held_) PyErr_Clear();
  }
  ~BufferView() {
    if (held_) PyBuffer_Release(&view_);
  }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  bool held() const { return held_; }
  const Py_buffer& operator*() const { return view_; }

 private:
  Py_buffer view_;
  const bool held_;
};

void* Resolve(PyObject* value) {
  if (!EagerTensor_CheckExact(value)) return nullptr;
  TFE_TensorHandle* handle = EagerTensor_Handle(value);
  const StatusPtr status(TF_NewStatus());
  TF_Tensor* resolved = nullptr;
  // The caller holds a reference. Pending values may need a callback themselves.
  Py_BEGIN_ALLOW_THREADS;
  resolved = TFE_TensorHandleResolve(handle, status.get());
  Py_END_ALLOW_THREADS;
  return TF_GetCode(status.get()) == TF_OK ? resolved : nullptr;
}

bool Matches(void* resolved, int dtype, const int64_t* dims, int rank) {
  const auto* tensor = static_cast<const TF_Tensor*>(resolved);
  if (TF_TensorType(tensor) != TensorFlowDtype(dtype)) return false;
  if (TF_NumDims(tensor) != rank) return false;
  for (int i = 0; i < rank; ++i) {
    if (TF_Dim(tensor, i) != dims[i]) return false;
  }
  return true;
}

const void* Data(void* resolved) { return TF_TensorData(static_cast<TF_Tensor*>(resolved)); }

void Release(void* resolved) { TF_DeleteTensor(static_cast<TF_Tensor*>(resolved)); }

}  // namespace

// TensorFlow's own way copies twice, unless memory happens to be aligned, and runs an op.
nb::object CopyOfArray(nb::handle array, int dtype) {
  constexpr size_t kLarge = size_t{1} << 16;  // worth releasing the GIL
  const auto type = static_cast<TF_DataType>(dtype);
  const BufferView view(array);
  if (!view.held() || (*view).itemsize == 0) return nb::none();
  if (static_cast<size_t>((*view).itemsize) != TF_DataTypeSize(type)) return nb::none();
  const auto size = static_cast<size_t>((*view).len);
  const std::vector<int64_t> dims((*view).shape, (*view).shape + (*view).ndim);
  const TensorPtr tensor = Allocate(type, dims.data(), (*view).ndim, size);
  if (tensor == nullptr) return nb::none();
  const auto fill = [&] { Fill(tensor, (*view).buf, size); };
  if (size >= kLarge) {
    WithoutGil(fill);
  } else {
    fill();
  }
  PyObject* made = ToEager(tensor);
  return made == nullptr ? nb::none() : nb::steal(made);
}

const TensorApi kEagerTensors = {&Make, &Resolve, &Matches, &Data, &Release};

void DefineEagerTensors(nb::module_& m) {
  m.def("copy_of_array", &CopyOfArray, nb::arg("array"), nb::arg("dtype"),
        "Return an EagerTensor on the CPU with the values of a NumPy array, whose dtype has that "
        "number (`tf.DType.as_datatype_enum`). None for an array that is not in C order or has no "
        "buffer, and for dtypes without a fixed size.");
}

}  // namespace hostcall
