#include "profiler.h"

#include <string>

#include "runtime/capsules.h"
#include "runtime/stats.h"
#include "tsl/profiler/lib/traceme.h"
#include "xla/tsl/profiler/backends/cpu/traceme_recorder.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

int64_t Begin(const std::string& name) { return tsl::profiler::TraceMe::ActivityStart(name); }
void End(int64_t begun) { tsl::profiler::TraceMe::ActivityEnd(begun); }

const ProfilerApi kProfiler = {&tsl::profiler::internal::g_trace_level, &Begin, &End};

}  // namespace

void DefineProfiler(nb::module_& m) {
  m.def(
      "profiler", [] { return nb::capsule(&kProfiler, capsules::kProfilerApi); },
      "What the runtime tells of calls: a pointer to a ProfilerApi (stats.h).");
}

}  // namespace hostcall
