#include "stats.h"

namespace hostcall {
namespace {

std::atomic<bool> collects{false};
std::atomic<const ProfilerApi*> profiler{nullptr};

}  // namespace

bool CollectsStats() { return collects.load(std::memory_order_relaxed); }
void CollectStats(bool on) { collects = on; }

void SetProfilerApi(const ProfilerApi* api) { profiler = api; }

Profiled::Profiled(const std::string& name) {
  if (const ProfilerApi* api = profiler) begun_ = api->begin(name);
}

Profiled::~Profiled() {
  if (const ProfilerApi* api = profiler) api->end(begun_);
}

}  // namespace hostcall
