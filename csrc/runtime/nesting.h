// The depth of nested calls on a thread, and the check that its stack has room for one more.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace hostcall {

// A call from a compiled program into Python, while it lasts. The callback may run another compiled
// program on the same thread, whose calls are nested in this one.
class NestedCall {
 public:
  NestedCall() : depth_(Depth()) { ++depth_; }
  ~NestedCall() { --depth_; }
  NestedCall(const NestedCall&) = delete;
  NestedCall& operator=(const NestedCall&) = delete;

  bool is_nested() const { return depth_ > 1; }

  // Returns whether the stack may end before the next call is reached. Not asked of the first call:
  // its use of stack is TensorFlow's business, and even a small stack may suffice.
  bool LacksStack() const { return is_nested() && Stack::OfThread().IsLow(); }

  // Returns the message of the error.
  std::string Complaint() const {
    return "Calls of compiled programs into Python are nested " + std::to_string(depth_) +
           " deep, one within the other, and the stack of their thread (" +
           std::to_string(Stack::OfThread().size() >> 10) +
           " KiB) has no room for more. If the nesting has no end, that is the mistake. Otherwise "
           "make the outermost call on a thread with a larger stack:\n\n"
           "    threading.stack_size(512 * 1024 * 1024)\n"
           "    thread = threading.Thread(target=...)\n\n";
  }

 private:
  class Stack {
   public:
    // Returns the thread's stack. Asked once: for the main thread that reads a file.
    static const Stack& OfThread() {
      static thread_local const Stack stack;
      return stack;
    }

    Stack() {
      pthread_attr_t attributes;
      if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
      void* low = nullptr;
      if (pthread_attr_getstack(&attributes, &low, &size_) != 0) size_ = 0;
      low_ = reinterpret_cast<uintptr_t>(low);
      pthread_attr_destroy(&attributes);
    }

    size_t size() const { return size_; }

    bool IsLow() const {
      const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
      // Outside this stack runs code that switches stacks itself; the end of that stack is unknown.
      const bool known = here >= low_ && here - low_ < size_;
      return known && here - low_ < std::min(kReserve, size_ / 4);
    }

   private:
    // Room for the code before the next call: some 30 KiB of TensorFlow and XLA, a compilation,
    // which takes 60 KiB and 10 more for each branch within a branch, and the user's code.
    static constexpr size_t kReserve = 1 << 20;

    uintptr_t low_ = 0;
    size_t size_ = 0;
  };

  static int64_t& Depth() {
    static thread_local int64_t depth = 0;
    return depth;
  }

  int64_t& depth_;  // a thread-local look-up takes a call
};

}  // namespace hostcall
