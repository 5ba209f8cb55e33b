#include "frame.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "device.h"

namespace hostcall::fakes {
namespace {

constexpr size_t kAlignment = 16;
constexpr char kPattern = '\xA5';

// The buffers of one side of a frame. They point to each other, so none may move.
template <typename Type>
class Side {
 public:
  Side(const std::vector<BufferSpec>& specs, Type type) : types_(specs.size(), type) {
    buffers_.reserve(specs.size());
    for (const BufferSpec& spec : specs) {
      // A copy, which is freed with the frame.
      dims_.push_back(spec.dims);
      buffers_.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr,
                          static_cast<XLA_FFI_DataType>(spec.dtype), spec.memory.data(),
                          static_cast<int64_t>(spec.dims.size()), dims_.back().data()});
      pointers_.push_back(&buffers_.back());
    }
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  int64_t size() const { return static_cast<int64_t>(types_.size()); }
  Type* types() { return types_.data(); }
  void** pointers() { return pointers_.data(); }

 private:
  std::vector<Type> types_;
  std::vector<std::vector<int64_t>> dims_;
  std::vector<XLA_FFI_Buffer> buffers_;
  std::vector<void*> pointers_;
};

class Attributes {
 public:
  explicit Attributes(std::vector<AttributeSpec> specs) : specs_(std::move(specs)) {
    const size_t count = specs_.size();
    spans_.resize(count);
    scalars_.resize(count);
    arrays_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      AttributeSpec& spec = specs_[i];
      const auto dtype = static_cast<XLA_FFI_DataType>(spec.dtype);
      spans_[i] = {spec.name.data(), spec.name.size()};
      scalars_[i] = {dtype, spec.values.data()};
      arrays_[i] = {dtype, spec.values.size(), spec.values.data()};
      names_.push_back(&spans_[i]);
      types_.push_back(spec.scalar ? XLA_FFI_AttrType_SCALAR : XLA_FFI_AttrType_ARRAY);
      pointers_.push_back(spec.scalar ? static_cast<void*>(&scalars_[i]) : &arrays_[i]);
    }
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  XLA_FFI_Attrs Get() {
    return {XLA_FFI_Attrs_STRUCT_SIZE,
            nullptr,
            static_cast<int64_t>(specs_.size()),
            types_.data(),
            names_.data(),
            pointers_.data()};
  }

 private:
  std::vector<AttributeSpec> specs_;
  std::vector<XLA_FFI_ByteSpan> spans_;
  std::vector<XLA_FFI_Scalar> scalars_;
  std::vector<XLA_FFI_Array> arrays_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<void*> pointers_;
};

XLA_FFI_CallFrame EmptyFrame() {
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = FakeApi();
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  return frame;
}

// Calls the handler; the frame ends with this function.
XLA_FFI_Error* Enter(const Call& call, XLA_FFI_Future** future) {
  Side<XLA_FFI_ArgType> operands(call.operands, XLA_FFI_ArgType_BUFFER);
  Side<XLA_FFI_RetType> results(call.results, XLA_FFI_RetType_BUFFER);
  Attributes attributes(call.attributes);
  XLA_FFI_CallFrame frame = EmptyFrame();
  frame.stage = call.stage;
  std::optional<Launch> launch;
  if (call.place == Place::kDevice) launch.emplace();
  XLA_FFI_ExecutionContext context{launch.has_value() ? launch->stream() : nullptr, call.run};
  frame.ctx = &context;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, operands.size(), operands.types(),
                operands.pointers()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, results.size(), results.types(),
                results.pointers()};
  frame.attrs = attributes.Get();
  XLA_FFI_Error* error = call.handler(&frame);
  *future = frame.future;
  return error;
}

}  // namespace

Memory::Memory(size_t size, Place place)
    : Memory(std::vector<char>(size, kPattern).data(), size, place) {}

Memory::Memory(const void* data, size_t size, Place place) : size_(size), place_(place) {
  if (size == 0) return;
  if (place == Place::kDevice) {
    data_ = DeviceMemory(data, size);
    return;
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, size) != 0) throw std::bad_alloc();
  data_.reset(memory, &std::free);
  std::memcpy(memory, data, size);
}

std::vector<char> Memory::Read() const {
  std::vector<char> bytes(size_);
  if (size_ == 0) return bytes;
  if (place_ == Place::kDevice) {
    ReadDevice(data(), bytes.data(), size_);
  } else {
    std::memcpy(bytes.data(), data(), size_);
  }
  return bytes;
}

Outcome Run(const Call& call) {
  XLA_FFI_Future* future = nullptr;
  if (XLA_FFI_Error* error = Enter(call, &future); error != nullptr) return Consume(error);
  return future == nullptr ? Outcome() : Await(future);
}

Outcome RunOnForeignThread(const Call& call) {
  Outcome outcome;
  std::thread([&] { outcome = Run(call); }).join();
  return outcome;
}

Outcome Ask(XLA_FFI_Handler* handler, XLA_FFI_Metadata* metadata) {
  metadata->struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base = {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata,
                              nullptr};
  extension.metadata = metadata;
  XLA_FFI_CallFrame frame = EmptyFrame();
  frame.extension_start = &extension.extension_base;
  const XLA_FFI_TypeId beyond = {0xA5A5};  // beyond version 0.1's answer
  if (CurrentAge() != Age::kNewest) {
    frame.api = nullptr;
    metadata->state_type_id = beyond;
  }
  XLA_FFI_Error* error = handler(&frame);
  if (error != nullptr) return Consume(error);
  if (CurrentAge() != Age::kNewest && metadata->state_type_id.type_id != beyond.type_id) {
    return {XLA_FFI_Error_Code_INTERNAL, "the handler wrote where it has no room"};
  }
  return Outcome();
}

}  // namespace hostcall::fakes
