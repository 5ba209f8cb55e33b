#include "array_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fork.h"
#include "numpy.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// The C library keeps the memory of smaller arrays itself.
constexpr size_t kLarge = size_t{1} << 18;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kComesBack = false;  // sanitizers watch the C library's memory
#else
constexpr bool kComesBack = true;
#endif

// Rounds up to one of a few sizes, so that arrays of similar sizes can share a block: at most an
// eighth of a block is left over.
size_t BlockSize(size_t size) {
  size_t step = kLarge / 8;
  while (step * 16 <= size) step *= 2;
  return (size + step - 1) / step * step;
}

class Blocks : public HeldAcrossFork<Blocks> {
 public:
  // Returns null if memory is exhausted.
  void* Take(size_t size) {
    const size_t wanted = BlockSize(size);
    if (void* kept = TakeKept(wanted); kept != nullptr) return kept;
    void* data = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    ExpectToFill(data, wanted);
    std::lock_guard<std::mutex> lock(mutex_);
    used_.emplace(data, wanted);
    return data;
  }

  // Takes a block back; returns false if the memory is not a block.
  bool Give(void* data) {
    std::deque<Block> dropped;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto used = used_.find(data);
      if (used == used_.end()) return false;
      kept_.push_back({data, used->second});
      bytes_ += used->second;
      used_.erase(used);
      for (; bytes_ > kMostKept; kept_.pop_front()) {
        bytes_ -= kept_.front().size;
        dropped.push_back(kept_.front());
      }
    }
    for (const Block& block : dropped) munmap(block.data, block.size);
    return true;
  }

  // Returns 0 if the memory is not a block.
  size_t SizeOf(void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto used = used_.find(data);
    return used == used_.end() ? 0 : used->second;
  }

  size_t bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
  }

 private:
  struct Block {
    void* data;
    size_t size;
  };

  // Takes the block that came back last, which the caches may still hold.
  void* TakeKept(size_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [&](const Block& block) { return block.size == size; });
    if (found == kept_.rend()) return nullptr;
    void* data = found->data;
    bytes_ -= size;
    kept_.erase(std::next(found).base());
    used_.emplace(data, size);
    return data;
  }

  std::unordered_map<void*, size_t> used_;
  std::deque<Block> kept_;  // oldest first
  size_t bytes_ = 0;        // in `kept_`
};

// Allocates an array's memory for NumPy, which frees it when the array is gone. NumPy may ask for
// any size: for memory that an array grows into, for example.
void* Allocate(void*, size_t size) {
  return size < kLarge ? std::malloc(std::max<size_t>(size, 1)) : Blocks::Global().Take(size);
}

void Free(void*, void* data, size_t) {
  if (data != nullptr && !Blocks::Global().Give(data)) std::free(data);
}

void* AllocateZeros(void*, size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
  void* data = Allocate(nullptr, bytes);
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

void* Reallocate(void*, void* data, size_t size) {
  const size_t before = data == nullptr ? 0 : Blocks::Global().SizeOf(data);
  if (before == 0 && size < kLarge) return std::realloc(data, std::max<size_t>(size, 1));
  void* next = Allocate(nullptr, size);
  if (next == nullptr || data == nullptr) return next;
  // The usable size is all that is known of memory from the C library.
  std::memcpy(next, data, std::min(size, before == 0 ? malloc_usable_size(data) : before));
  Free(nullptr, data, 0);
  return next;
}

PyDataMem_Handler handler = {
    "hostcall", 1, {nullptr, &Allocate, &AllocateZeros, &Reallocate, &Free}};

// Returns the handler in a capsule with NumPy's own name for it.
PyObject* HandlerCapsule() {
  static PyObject* const capsule = PyCapsule_New(&handler, "mem_handler", nullptr);
  return capsule;
}

// A scope in which NumPy allocates by the handler.
class Allocating {
 public:
  Allocating() : before_(PyDataMem_SetHandler(HandlerCapsule())) {
    if (before_ == nullptr) throw nb::python_error();
  }
  ~Allocating() {
    Py_XDECREF(PyDataMem_SetHandler(before_));
    Py_DECREF(before_);
  }
  Allocating(const Allocating&) = delete;
  Allocating& operator=(const Allocating&) = delete;

 private:
  PyObject* const before_;
};

bool IsLarge(Dims dims, nb::handle descr) {
  size_t size = static_cast<size_t>(PyDataType_ELSIZE(AsDescr(descr)));
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(size, static_cast<size_t>(dim), &size)) return false;
  }
  return size >= kLarge;
}

}  // namespace

nb::object EmptyArray(Dims dims, nb::object descr) {
  std::optional<Allocating> allocating;
  if (kComesBack && IsLarge(dims, descr)) allocating.emplace();
  return Checked(PyArray_NewFromDescr(
      &PyArray_Type, AsDescr(descr.release()), static_cast<int>(dims.size()),
      const_cast<npy_intp*>(dims.begin()), nullptr, nullptr, /*flags=*/0, nullptr));
}

void* TakeMemory(size_t size) {
  return kComesBack && size >= kLarge ? Blocks::Global().Take(size) : nullptr;
}

void GiveMemory(void* data) { Blocks::Global().Give(data); }

size_t KeptArrayMemory() { return Blocks::Global().bytes(); }

}  // namespace hostcall
