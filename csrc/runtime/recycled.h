// Memory that a thread keeps for its next calls.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace hostcall {

// The memory of vectors that this thread no longer uses.
template <typename T>
class SpareMemory {
 public:
  static std::vector<T> Take() {
    if (state_ == nullptr || state_->empty()) return {};
    std::vector<T> memory = std::move(state_->back());
    state_->pop_back();
    return memory;
  }

  [[gnu::noinline]] static void Give(std::vector<T> memory) {
    if (memory.capacity() > kLargest) return;
    if (state_ == nullptr && !Prepare()) return;
    if (state_->size() == kMost) return;
    memory.clear();
    state_->push_back(std::move(memory));
  }

 private:
  // A call has few vectors at a time, and so do the calls that it is nested in.
  static constexpr size_t kMost = 32;
  static constexpr size_t kLargest = 256;

  // Without a destructor: a program may run while its thread, or the process, ends.
  inline static thread_local std::vector<std::vector<T>>* state_ = nullptr;
  inline static thread_local bool is_over_ = false;

  struct End {
    ~End() {
      delete std::exchange(state_, nullptr);
      is_over_ = true;
    }
  };

  static bool Prepare() {
    if (is_over_) return false;
    static thread_local const End end;
    (void)end;
    state_ = new std::vector<std::vector<T>>();
    state_->reserve(kMost);
    return true;
  }
};

// A vector that takes spare memory when it reserves: once warm, calls of fixed shapes allocate
// nothing. It may end on another thread than it began on.
template <typename T>
class RecycledVector : public std::vector<T> {
 public:
  RecycledVector() = default;
  ~RecycledVector() {
    if (this->capacity() > 0) [[unlikely]]
      SpareMemory<T>::Give(std::move(*this));
  }
  RecycledVector(RecycledVector&&) noexcept = default;
  RecycledVector& operator=(RecycledVector&&) noexcept = default;

  void reserve(size_t size) {
    if (size == 0) return;
    if (this->capacity() == 0) std::vector<T>::operator=(SpareMemory<T>::Take());
    std::vector<T>::reserve(size);
  }
};

}  // namespace hostcall
