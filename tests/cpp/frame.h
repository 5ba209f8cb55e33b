// Calls of an FFI handler with call frames made by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fake_xla.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall::fakes {

enum class Place { kHost, kDevice };

// The memory of a buffer: of exactly the given size, so that a sanitizer sees the first byte beyond
// it, with the least alignment that XLA gives, and null if it is empty, as in XLA. Copies share it.
class Memory {
 public:
  // Fills the memory with a pattern, which reveals bytes that were never written.
  explicit Memory(size_t size, Place place = Place::kHost);
  Memory(const void* data, size_t size, Place place = Place::kHost);

  void* data() const { return data_.get(); }
  size_t size() const { return size_; }

  // Returns the bytes, on the host or a device.
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

// The parts of a call frame.
struct Call {
  XLA_FFI_Handler* handler;
  std::vector<BufferSpec> operands;
  std::vector<BufferSpec> results;
  std::vector<AttributeSpec> attributes;  // sorted by name, as XLA has them
  XLA_FFI_ExecutionStage stage = XLA_FFI_ExecutionStage_EXECUTE;
  Place place = Place::kHost;  // of all buffers
  int64_t run = 0;             // the id of the program's run
};

// Calls the handler on this thread and waits for the end. The frame is gone as soon as the handler
// has returned; buffers live until the call has ended.
Outcome Run(const Call& call);

// Does the same on a thread that Python does not know, like XLA's own.
Outcome RunOnForeignThread(const Call& call);

// Asks for the handler's metadata, as XLA does at registration: the version of its FFI API, and its
// traits.
Outcome Ask(XLA_FFI_Handler* handler, XLA_FFI_Metadata* metadata);

}  // namespace hostcall::fakes
