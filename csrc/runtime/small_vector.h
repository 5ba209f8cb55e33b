// A vector that allocates no memory while it is short.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace hostcall {

// A vector of up to kFew plain values in place; if it has more, all of them lie in a std::vector.
// Its functions do the same as std::vector's.
template <typename T, size_t kFew>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  SmallVector() {}  // leaves the memory for values as it is
  SmallVector(SmallVector&& other) noexcept { Take(other); }
  SmallVector& operator=(SmallVector&& other) noexcept {
    Take(other);
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  T* data() { return many_.empty() ? reinterpret_cast<T*>(few_) : many_.data(); }
  const T* data() const { return const_cast<SmallVector*>(this)->data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& front() { return *data(); }

  template <typename... Args>
  T& emplace_back(Args&&... args) {
    if (size_ >= kFew) return AddToMany(T{std::forward<Args>(args)...});
    return *new (reinterpret_cast<T*>(few_) + size_++) T{std::forward<Args>(args)...};
  }
  void push_back(const T& value) { emplace_back(value); }

  void resize(size_t size) {
    while (size_ < size) emplace_back();
    if (!many_.empty()) {
      if (size <= kFew) std::memcpy(few_, many_.data(), size * sizeof(T));
      many_.resize(size <= kFew ? 0 : size);
    }
    size_ = size;
  }

  void erase_front() {
    std::memmove(data(), data() + 1, (size_ - 1) * sizeof(T));
    resize(size_ - 1);
  }

 private:
  [[gnu::noinline]] T& AddToMany(const T& value) {
    if (many_.empty()) {
      many_.reserve(4 * kFew);
      many_.assign(begin(), end());
    }
    many_.push_back(value);
    ++size_;
    return many_.back();
  }

  void Take(SmallVector& other) {
    if (other.many_.empty()) std::memcpy(few_, other.few_, other.size_ * sizeof(T));
    many_ = std::move(other.many_);
    size_ = std::exchange(other.size_, 0);
  }

  size_t size_ = 0;
  std::vector<T> many_;  // empty, or all values
  alignas(T) std::byte few_[kFew * sizeof(T)];
};

}  // namespace hostcall
