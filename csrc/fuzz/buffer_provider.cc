#include "buffer_provider.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

namespace hostcall::fuzz {
namespace {

std::mutex mutex;
std::map<const void*, Memory> provided;
std::atomic<int64_t> holds{0};

template <typename F>
void ForEachBuffer(const Call& call, F&& f) {
  for (const auto* buffers : {&call.operands, &call.results}) {
    for (const BufferSpec& buffer : *buffers) {
      if (buffer.memory.size() > 0) f(buffer.memory);
    }
  }
}

void* Hold(const void* data, size_t size) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = provided.find(data);
  if (found == provided.end() || found->second.size() < size) return nullptr;
  ++holds;
  return new Memory(found->second);
}

void Release(void* hold) {
  --holds;
  delete static_cast<Memory*>(hold);
}

constexpr BufferProviderApi kBufferProvider = {&Hold, &Release};

}  // namespace

ProvidedBuffers::ProvidedBuffers(const Call& call) : call_(call) {
  std::lock_guard<std::mutex> lock(mutex);
  ForEachBuffer(call, [](const Memory& memory) { provided.emplace(memory.data(), memory); });
}

ProvidedBuffers::~ProvidedBuffers() {
  std::lock_guard<std::mutex> lock(mutex);
  ForEachBuffer(call_, [](const Memory& memory) { provided.erase(memory.data()); });
}

const BufferProviderApi* GetBufferProvider() { return &kBufferProvider; }

int64_t Holds() { return holds; }

}  // namespace hostcall::fuzz
