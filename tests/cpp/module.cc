// The extension module `_frames`: it plays XLA, so that the handlers of `hostcall_runtime._runtime`
// can be tested without TensorFlow. It is never installed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "device.h"
#include "fake_xla.h"
#include "frame.h"
#include "native_code.h"
#include "runtime/capsules.h"
#include "runtime/host_api.h"

namespace nb = nanobind;

namespace hostcall::fakes {
namespace {

using Dims = std::vector<int64_t>;
using Operands = std::vector<std::tuple<int, Dims, nb::bytes>>;  // element type, dims, data
using Results = std::vector<std::tuple<int, Dims, size_t>>;      // element type, dims, bytes
// Name, element type, true for a scalar, values.
using AttributeSpecs = std::vector<std::tuple<std::string, int, bool, std::vector<int64_t>>>;

// The memory of calls made by hand, which arrays may use, and the number of holds of it.
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

constexpr HostApi kHost = {{}, {&Hold, &Release}, {}, {}};

// A scope in which the memory of arrays may lie in the call's buffers.
class ProvidedBuffers {
 public:
  explicit ProvidedBuffers(const Call& call) : call_(call) {
    std::lock_guard<std::mutex> lock(mutex);
    ForEachBuffer(call, [](const Memory& memory) { provided.emplace(memory.data(), memory); });
  }
  ~ProvidedBuffers() {
    std::lock_guard<std::mutex> lock(mutex);
    ForEachBuffer(call_, [](const Memory& memory) { provided.erase(memory.data()); });
  }
  ProvidedBuffers(const ProvidedBuffers&) = delete;
  ProvidedBuffers& operator=(const ProvidedBuffers&) = delete;

 private:
  const Call& call_;
};

XLA_FFI_Handler* HandlerOf(const nb::capsule& capsule) {
  return reinterpret_cast<XLA_FFI_Handler*>(capsule.data());
}

Call MakeCall(const nb::capsule& handler, const Operands& operands, const Results& results,
              const AttributeSpecs& attributes, int stage = XLA_FFI_ExecutionStage_EXECUTE,
              Place place = Place::kHost) {
  Call call{};
  call.handler = HandlerOf(handler);
  for (const auto& [dtype, dims, data] : operands) {
    call.operands.push_back({dtype, dims, Memory(data.data(), data.size(), place)});
  }
  for (const auto& [dtype, dims, size] : results) {
    call.results.push_back({dtype, dims, Memory(size, place)});
  }
  for (const auto& [name, dtype, scalar, values] : attributes) {
    call.attributes.push_back({name, dtype, scalar, values});
  }
  call.stage = static_cast<XLA_FFI_ExecutionStage>(stage);
  call.place = place;
  return call;
}

nb::tuple RunCall(const nb::capsule& handler, const Operands& operands, const Results& results,
                  const AttributeSpecs& attributes, bool foreign, int stage, bool on_device,
                  int64_t run) {
  const Place place = on_device ? Place::kDevice : Place::kHost;
  Call call = MakeCall(handler, operands, results, attributes, stage, place);
  call.run = run;
  Outcome outcome;
  {
    const ProvidedBuffers provided(call);
    nb::gil_scoped_release release;
    outcome = foreign ? RunOnForeignThread(call) : Run(call);
  }
  nb::list written;
  for (const BufferSpec& result : call.results) {
    const std::vector<char> bytes = result.memory.Read();
    written.append(nb::bytes(bytes.data(), bytes.size()));
  }
  return nb::make_tuple(outcome.code, nb::bytes(outcome.message.data(), outcome.message.size()),
                        written);
}

XLA_FFI_Metadata MetadataOf(const nb::capsule& handler) {
  XLA_FFI_Metadata metadata{};
  const Outcome outcome = Ask(HandlerOf(handler), &metadata);
  if (outcome.code != 0) throw nb::value_error(outcome.message.c_str());
  return metadata;
}

// The two functions below leak their call, which may run until the process is gone.

void Repeat(const nb::capsule& handler, const Operands& operands, const Results& results,
            const AttributeSpecs& attributes) {
  auto* call = new Call(MakeCall(handler, operands, results, attributes));
  std::thread([call] {
    while (true) Run(*call);
  }).detach();
}

Call* call_at_exit = nullptr;

void CallAtExit(const nb::capsule& handler, const Operands& operands, const Results& results,
                const AttributeSpecs& attributes) {
  call_at_exit = new Call(MakeCall(handler, operands, results, attributes));
  std::atexit([] {
    const Outcome outcome = RunOnForeignThread(*call_at_exit);
    std::printf("after the interpreter: %d %s\n", outcome.code, outcome.message.c_str());
    std::fflush(stdout);
  });
}

}  // namespace
}  // namespace hostcall::fakes

NB_MODULE(_frames, m) {
  using namespace hostcall::fakes;
  m.doc() = "Calls FFI handlers with call frames made by hand.";
  DefineNativeCode(m);
  DefineDevice(m);
  m.def(
      "call", &RunCall, nb::arg("handler"), nb::arg("operands"), nb::arg("results"),
      nb::arg("attributes"), nb::arg("foreign"),
      nb::arg("stage") = static_cast<int>(XLA_FFI_ExecutionStage_EXECUTE),
      nb::arg("on_device") = false, nb::arg("run") = -1,
      "Calls the handler, on a thread that Python does not know if `foreign`, with all buffers in "
      "the memory of the device if `on_device`, in the run of a program with that id, and returns "
      "the status code, the message, and the bytes of each result.");
  m.def("repeat", &Repeat, nb::arg("handler"), nb::arg("operands"), nb::arg("results"),
        nb::arg("attributes"),
        "Starts a foreign thread that makes the call again and again until the process exits.");
  m.def("call_at_exit", &CallAtExit, nb::arg("handler"), nb::arg("operands"), nb::arg("results"),
        nb::arg("attributes"),
        "Makes the call when the interpreter is gone already, and prints its end.");
  m.def(
      "api_version",
      [](const nb::capsule& handler) {
        const XLA_FFI_Api_Version version = MetadataOf(handler).api_version;
        return std::pair(version.major_version, version.minor_version);
      },
      nb::arg("handler"), "The FFI API version (major, minor) that the handler says it is of.");
  m.def(
      "set_age", [](int age) { SetAge(static_cast<Age>(age)); }, nb::arg("age"),
      "Plays XLA with the newest FFI (0), or that of TensorFlow 2.20 (1).");
  m.def(
      "traits", [](const nb::capsule& handler) { return MetadataOf(handler).traits; },
      nb::arg("handler"), "The bits of the traits that the handler says it has.");
  m.def(
      "host_api", [] { return nb::capsule(&kHost, hostcall::capsules::kHostApi); },
      "Provides the memory of frames: a pointer to a HostApi (runtime/host_api.h).");
  m.def("holds", [] { return holds.load(); }, "How often the memory of frames is held.");
  m.def("live_objects", &LiveObjects,
        "How many errors and futures of XLA exist: none when no call is under way.");
}
