// Calls of an FFI handler with call frames made by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fake_xla.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall::fuzz {

enum class Place { kHost, kDevice };

// Memory of a buffer: of exactly the size said, so that a sanitizer sees the first byte beyond it,
// with the least alignment that XLA gives, and null where it is empty, as XLA has it. Copies share
// it.
class Memory {
 public:
  // Filled with a pattern, by which one sees what nobody wrote.
  explicit Memory(size_t size, Place place = Place::kHost);
  Memory(const void* data, size_t size, Place place = Place::kHost);

  void* data() const { return data_.get(); }
  size_t size() const { return size_; }

  // Its bytes, wherever they are.
  std::vector<char> Read() const;

 private:
  size_t size_;
  Place place_;
  std::shared_ptr<void> data_;
};

struct BufferSpec {
  int dtype;
  std::vector<int64_t> dims;
  Memory memory;
};

// A scalar, or an array. The handler takes those of type S64 only.
struct AttributeSpec {
  std::string name;
  int dtype;
  bool scalar;
  std::vector<int64_t> values;
};

// What a call frame is made of.
struct Call {
  XLA_FFI_Handler* handler;
  std::vector<BufferSpec> operands;
  std::vector<BufferSpec> results;
  std::vector<AttributeSpec> attributes;  // sorted by name, as XLA has them
  XLA_FFI_ExecutionStage stage = XLA_FFI_ExecutionStage_EXECUTE;
  Place place = Place::kHost;  // of all buffers
  int64_t run = 0;             // the id of the program's run
};

// Calls the handler on this thread and waits for the end. As soon as the handler has returned, the
// frame is gone; buffers live until the call has ended.
Outcome Run(const Call& call);

// The same on a thread that Python does not know, as XLA's own are.
Outcome RunOnForeignThread(const Call& call);

// What the handler says of itself, as XLA asks at registration: the FFI API version that it is of,
// and its traits.
Outcome Ask(XLA_FFI_Handler* handler, XLA_FFI_Metadata* metadata);

}  // namespace hostcall::fuzz
