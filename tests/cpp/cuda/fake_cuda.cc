#include "fake_cuda.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

enum Code {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidContext = 201,
  kIllegalAddress = 700,
};

// The contexts of CUDA; zero is none.
enum Context : uintptr_t { kNone, kDevice, kOther };

// No host address has these bits.
constexpr uint64_t kFirstAddress = uint64_t{0x0CDA} << 48;
constexpr uint64_t kGap = 4096;

// The driver's number for the stream of calls that name none.
void* const kDefaultStream = reinterpret_cast<void*>(uintptr_t{1});

using Bytes = std::vector<unsigned char>;
using Queue = std::deque<std::function<void()>>;

struct Failing {
  std::string function;
  int first = 0;
  int count = 0;
  int code = 0;
};

struct Memory {
  std::unique_ptr<Bytes> bytes;
  int device;
};

struct Device {
  Device() { streams[kDefaultStream] = std::make_unique<Queue>(); }

  std::mutex mutex;
  uint64_t next = kFirstAddress;
  std::map<uint64_t, Memory> memory;
  std::map<void*, std::unique_ptr<Queue>> streams;
  std::map<void*, size_t> pinned;
  size_t times_pinned = 0;
  Failing failing;
};

Device& TheDevice() {
  static auto* device = new Device();
  return *device;
}

thread_local Context current = kNone;

[[noreturn]] void Misuse(const char* what) {
  std::fprintf(stderr, "fake CUDA: %s\n", what);
  std::abort();
}

// Checks that this thread has no GIL, for which others would wait while it waits for the device.
void ExpectNoGil() {
  using Check = int();
  static auto* const check = reinterpret_cast<Check*>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (check != nullptr && check() != 0) Misuse("called with the GIL");
}

// Returns the memory that an address lies in, or the end: it comes just before the first memory
// that begins after the address.
auto Find(uint64_t address) {
  auto& memory = TheDevice().memory;
  auto found = memory.upper_bound(address);
  if (found == memory.begin()) return memory.end();
  --found;
  return address - found->first < found->second.bytes->size() ? found : memory.end();
}

unsigned char* Follow(uint64_t address, size_t size) {
  const auto found = Find(address);
  if (found == TheDevice().memory.end()) Misuse("an address that is not the device's");
  const uint64_t offset = address - found->first;
  if (offset + size > found->second.bytes->size()) Misuse("a copy beyond the end of a buffer");
  return found->second.bytes->data() + offset;
}

// Returns the code with which a call of the function is to fail.
int Fails(const char* function) {
  Failing& failing = TheDevice().failing;
  if (failing.function != function) return kSuccess;
  if (--failing.first > 0 || failing.count == 0) return kSuccess;
  --failing.count;
  return failing.code;
}

template <typename Work>
int Enqueue(const char* function, void* stream, size_t size, const void* host, Work work) {
  ExpectNoGil();
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  if (const int code = Fails(function); code != kSuccess) return code;
  if (current != kDevice) return kInvalidContext;
  if (host == nullptr || size == 0) Misuse("a copy of nothing");
  const auto found = device.streams.find(stream);
  if (found == device.streams.end()) Misuse("a stream that there is not");
  found->second->push_back(std::move(work));
  return kSuccess;
}

const std::map<int, std::pair<const char*, const char*>>& Errors() {
  static const auto* errors = new std::map<int, std::pair<const char*, const char*>>{
      {kInvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
      {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
      {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
      {kIllegalAddress, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
  };
  return *errors;
}

}  // namespace

uint64_t fake_cuda_allocate(const void* data, size_t size, int number) {
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  const auto* bytes = static_cast<const unsigned char*>(data);
  const uint64_t address = device.next;
  device.next += (size + 2 * kGap) / kGap * kGap;
  device.memory[address] = {std::make_unique<Bytes>(bytes, bytes + size), number};
  return address;
}

void fake_cuda_release(uint64_t address) {
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  if (device.memory.erase(address) != 1) Misuse("memory is released twice");
}

void fake_cuda_read(uint64_t address, void* to, size_t size) {
  std::lock_guard<std::mutex> lock(TheDevice().mutex);
  std::memcpy(to, Follow(address, size), size);
}

size_t fake_cuda_allocations() {
  std::lock_guard<std::mutex> lock(TheDevice().mutex);
  return TheDevice().memory.size();
}

void fake_cuda_write_later(uint64_t address, const void* data, size_t size, void* stream) {
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  const auto* bytes = static_cast<const unsigned char*>(data);
  device.streams.at(stream)->push_back([address, kept = Bytes(bytes, bytes + size)] {
    std::memcpy(Follow(address, kept.size()), kept.data(), kept.size());
  });
}

void fake_cuda_pinned(size_t* bytes, size_t* times) {
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  *bytes = 0;
  for (const auto& [memory, size] : device.pinned) *bytes += size;
  *times = std::exchange(device.times_pinned, 0);
}

void* fake_cuda_create_stream() {
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  auto queue = std::make_unique<Queue>();
  void* stream = queue.get();
  device.streams[stream] = std::move(queue);
  return stream;
}

size_t fake_cuda_destroy_stream(void* stream) {
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  const size_t left = device.streams.at(stream)->size();
  device.streams.erase(stream);
  return left;
}

void fake_cuda_activate(bool other) { current = other ? kOther : kDevice; }

bool fake_cuda_is_active() { return current == kDevice; }

void fake_cuda_fail(const char* function, int first, int count, int code) {
  std::lock_guard<std::mutex> lock(TheDevice().mutex);
  TheDevice().failing = {function, first, count, code};
}

extern "C" {

int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t size, void* stream) {
  return Enqueue("cuMemcpyDtoHAsync_v2", stream, size, to,
                 [=] { std::memcpy(to, Follow(from, size), size); });
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t size, void* stream) {
  return Enqueue("cuMemcpyHtoDAsync_v2", stream, size, from,
                 [=] { std::memcpy(Follow(to, size), from, size); });
}

int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t size,
                         void* stream) {
  return Enqueue("cuMemcpyDtoDAsync_v2", stream, size, stream,
                 [=] { std::memmove(Follow(to, size), Follow(from, size), size); });
}

int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  constexpr int kMemoryType = 2, kOrdinal = 9;
  ExpectNoGil();
  std::lock_guard<std::mutex> lock(TheDevice().mutex);
  if (const int code = Fails("cuPointerGetAttribute"); code != kSuccess) return code;
  const auto found = Find(address);
  if (found == TheDevice().memory.end()) return kInvalidValue;
  if (attribute == kMemoryType) {
    *static_cast<unsigned*>(value) = 2;  // a device's
  } else if (attribute == kOrdinal) {
    *static_cast<int*>(value) = found->second.device;
  } else {
    Misuse("an attribute that there is not");
  }
  return kSuccess;
}

int cuCtxGetDevice(int* device) {
  std::lock_guard<std::mutex> lock(TheDevice().mutex);
  *device = 0;
  return current == kDevice ? Fails("cuCtxGetDevice") : kInvalidContext;
}

int cuStreamSynchronize(void* stream) {
  ExpectNoGil();
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  if (const int code = Fails("cuStreamSynchronize"); code != kSuccess) return code;
  const auto found = device.streams.find(stream);
  if (found == device.streams.end()) Misuse("a stream that there is not");
  for (const auto& work : *found->second) work();
  found->second->clear();
  return kSuccess;
}

int cuMemHostAlloc(void** memory, size_t size, unsigned flags) {
  ExpectNoGil();
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  if (const int code = Fails("cuMemHostAlloc"); code != kSuccess) return code;
  if (current != kDevice) return kInvalidContext;
  if (size == 0 || flags != 0) return kInvalidValue;
  *memory = std::malloc(size);
  if (*memory == nullptr) return kOutOfMemory;
  device.pinned[*memory] = size;
  ++device.times_pinned;
  return kSuccess;
}

int cuMemFreeHost(void* memory) {
  ExpectNoGil();
  Device& device = TheDevice();
  std::lock_guard<std::mutex> lock(device.mutex);
  if (device.pinned.erase(memory) != 1) Misuse("memory is freed that is not pinned");
  std::free(memory);
  return kSuccess;
}

int cuCtxGetCurrent(uintptr_t* context) {
  std::lock_guard<std::mutex> lock(TheDevice().mutex);
  *context = current;
  return Fails("cuCtxGetCurrent");
}

int cuCtxSetCurrent(uintptr_t context) {
  std::lock_guard<std::mutex> lock(TheDevice().mutex);
  current = static_cast<Context>(context);
  return Fails("cuCtxSetCurrent");
}

int cuGetErrorName(int code, const char** name) {
  const auto found = Errors().find(code);
  *name = found == Errors().end() ? nullptr : found->second.first;
  return *name == nullptr ? kInvalidValue : kSuccess;
}

int cuGetErrorString(int code, const char** text) {
  const auto found = Errors().find(code);
  *text = found == Errors().end() ? nullptr : found->second.second;
  return *text == nullptr ? kInvalidValue : kSuccess;
}
}
