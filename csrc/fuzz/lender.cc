#include "lender.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

namespace hostcall::fuzz {
namespace {

std::mutex mutex;
std::map<const void*, Memory> lendable;
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
  const auto found = lendable.find(data);
  if (found == lendable.end() || found->second.size() < size) return nullptr;
  ++holds;
  return new Memory(found->second);
}

void Release(void* hold) {
  --holds;
  delete static_cast<Memory*>(hold);
}

constexpr LenderApi kLender = {&Hold, &Release};

}  // namespace

Lending::Lending(const Call& call) : call_(call) {
  std::lock_guard<std::mutex> lock(mutex);
  ForEachBuffer(call, [](const Memory& memory) { lendable.emplace(memory.data(), memory); });
}

Lending::~Lending() {
  std::lock_guard<std::mutex> lock(mutex);
  ForEachBuffer(call_, [](const Memory& memory) { lendable.erase(memory.data()); });
}

const LenderApi* Lender() { return &kLender; }

int64_t Holds() { return holds; }

}  // namespace hostcall::fuzz
