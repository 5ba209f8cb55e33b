#include "buffer_provider.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "module.h"
#include "runtime/fork.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

using tensorflow::Allocator;
using tensorflow::Tensor;

using Address = uintptr_t;

Address AddressOf(const void* data) { return reinterpret_cast<Address>(data); }

// Memory that can be shared. Nothing of TensorFlow's is freed with the lock held: freeing a tensor
// may call our own allocator.
class Memory : public HeldAcrossFork<Memory> {
 public:
  void AddAllocated(void* data, size_t size, Allocator* owner) {
    std::lock_guard<std::mutex> lock(mutex_);
    allocated_[AddressOf(data)] = {size, owner};
  }

  // Returns true if the memory may be freed now; otherwise its last holder frees it.
  bool RemoveAllocated(void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = allocated_.find(AddressOf(data));
    if (found == allocated_.end()) return true;
    found->second.is_free = true;
    if (found->second.holds > 0) return false;
    allocated_.erase(found);
    return true;
  }

  void AddTensors(const std::vector<Tensor>& tensors) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Tensor& tensor : tensors) {
      tensors_.emplace(AddressOf(tensor.tensor_data().data()), &tensor);
    }
  }

  void RemoveTensors(const std::vector<Tensor>& tensors) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Tensor& tensor : tensors) {
      auto found = tensors_.lower_bound(AddressOf(tensor.tensor_data().data()));
      while (found->second != &tensor) ++found;
      tensors_.erase(found);
    }
  }

  size_t size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return allocated_.size() + tensors_.size();
  }

  // A hold on memory: a tensor around it, or the allocated block that counts its holds.
  using Hold = std::variant<Tensor, Address>;

  Hold* TryHold(const void* data, size_t size) {
    const Address begin = AddressOf(data);
    std::lock_guard<std::mutex> lock(mutex_);
    auto block = allocated_.upper_bound(begin);
    if (block != allocated_.begin()) {
      --block;
      if (begin + size <= block->first + block->second.size) {
        ++block->second.holds;
        return new Hold(block->first);
      }
    }
    // Check the tensors before it, too: a tensor may lie inside another.
    for (auto tensor = tensors_.upper_bound(begin); tensor != tensors_.begin();) {
      --tensor;
      if (begin + size <= tensor->first + tensor->second->TotalBytes()) {
        return new Hold(*tensor->second);
      }
    }
    return nullptr;
  }

  void Release(Hold* hold) {
    const std::unique_ptr<Hold> owned(hold);
    const Address* address = std::get_if<Address>(hold);
    if (address == nullptr) return;
    Allocator* owner = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto block = allocated_.find(*address);
      if (--block->second.holds > 0 || !block->second.is_free) return;
      owner = block->second.owner;
      allocated_.erase(block);
    }
    owner->DeallocateRaw(reinterpret_cast<void*>(*address));
  }

 private:
  struct Block {
    size_t size = 0;
    Allocator* owner = nullptr;
    int64_t holds = 0;
    bool is_free = false;  // the program has freed it
  };

  std::map<Address, Block> allocated_;
  std::multimap<Address, const Tensor*> tensors_;
};

// Allocator that uses another one, and frees no memory that arrays lie in. Leaked: tensors that a
// program returns may live for any time.
class ProviderAllocator : public Allocator {
 public:
  static ProviderAllocator* Over(Allocator* owner) {
    static auto* mutex = new std::mutex();
    static auto* all = new std::map<Allocator*, ProviderAllocator*>();
    std::lock_guard<std::mutex> lock(*mutex);
    ProviderAllocator*& found = (*all)[owner];
    if (found == nullptr) found = new ProviderAllocator(owner);
    return found;
  }

  std::string Name() override { return owner_->Name(); }
  void* AllocateRaw(size_t alignment, size_t size) override {
    return AllocateRaw(alignment, size, tensorflow::AllocationAttributes());
  }
  void* AllocateRaw(size_t alignment, size_t size,
                    const tensorflow::AllocationAttributes& attributes) override {
    void* data = owner_->AllocateRaw(alignment, size, attributes);
    if (data != nullptr) Memory::Global().AddAllocated(data, size, owner_);
    return data;
  }
  void DeallocateRaw(void* data) override {
    if (Memory::Global().RemoveAllocated(data)) owner_->DeallocateRaw(data);
  }
  tensorflow::AllocatorMemoryType GetMemoryType() const override { return owner_->GetMemoryType(); }

 private:
  explicit ProviderAllocator(Allocator* owner) : owner_(owner) {}

  Allocator* const owner_;
};

void* HoldMemory(const void* data, size_t size) { return Memory::Global().TryHold(data, size); }
void ReleaseMemory(void* hold) { Memory::Global().Release(static_cast<Memory::Hold*>(hold)); }

// Returns the value of an input, or of its variable; an empty tensor if that does not exist.
Tensor ValueOf(tensorflow::OpKernelContext* ctx, int input) {
  if (ctx->input_dtype(input) != tensorflow::DT_RESOURCE) return ctx->input(input);
  tensorflow::core::RefCountPtr<tensorflow::Var> variable;
  if (!tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, input), &variable).ok()) {
    return Tensor();
  }
  tensorflow::tf_shared_lock lock(*variable->mu());
  return *variable->tensor();
}

}  // namespace

const BufferProviderApi kBufferProvider = {&HoldMemory, &ReleaseMemory};

Allocator* BorrowableFrom(Allocator* owner) { return ProviderAllocator::Over(owner); }

BorrowableInputs::BorrowableInputs(tensorflow::OpKernelContext* ctx) {
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    Tensor value = ValueOf(ctx, i);
    if (value.IsInitialized() && tensorflow::DataTypeCanUseMemcpy(value.dtype())) {
      inputs_.push_back(std::move(value));
    }
  }
  Memory::Global().AddTensors(inputs_);
}

BorrowableInputs::~BorrowableInputs() { Memory::Global().RemoveTensors(inputs_); }

void DefineBufferProvider(nb::module_& m) {
  m.def(
      "provided_memory", [] { return Memory::Global().size(); },
      "Return the number of buffers that could be borrowed now, or still are.");
}

}  // namespace hostcall
