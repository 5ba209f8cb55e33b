// Native code that compiled programs call: no GIL and no Python on the way.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "frame.h"
#include "handler.h"
#include "module.h"
#include "native_table.h"
#include "xla/ffi/api/ffi.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

int64_t TotalBytes(const RawBuffers& buffers) {
  int64_t bytes = 0;
  for (const XLA_FFI_Buffer* buffer : buffers) bytes += static_cast<int64_t>(BytesOf(*buffer));
  return bytes;
}

NativeOutcome CallCounted(NativeFunction& function, const NativeFrame& frame) {
  Measured measured(function.label(), &function.stats());
  try {
    const NativeOutcome outcome = function.Call(frame);
    measured.Lap(&Stats::function);
    measured.Add(&Stats::errors, outcome.error != nullptr);
    if (measured.counts())
      measured.Add(&Stats::bytes, TotalBytes(frame.operands) + TotalBytes(frame.results));
    return outcome;
  } catch (...) {
    measured.Lap(&Stats::function);
    measured.Add(&Stats::errors, 1);
    throw;
  }
}

NativeOutcome CallOf(int64_t id, const NativeFrame& frame) {
  const NativeTable::Use function = NativeTable::Global().Find(id);
  if (function == nullptr) throw Gone("native", id);
  const NativeOutcome outcome = CallCounted(*function, frame);
  if (outcome.future != nullptr) NativeTable::Global().KeepForEver(function.shared());
  return outcome;
}

// Name, element type (0 for a text), bytes.
using GivenAttributes = std::vector<std::tuple<std::string, int, nb::bytes>>;

int64_t RegisterCFunction(const std::string& label, uintptr_t address, size_t arguments,
                          bool takes_sizes, bool returns_status, int64_t wanted) {
  return NativeTable::Global().Insert(
      std::make_shared<CFunction>(label, reinterpret_cast<void*>(address), arguments, takes_sizes,
                                  returns_status),
      wanted);
}

int64_t RegisterFfiHandler(const std::string& label, uintptr_t address,
                           const GivenAttributes& attributes, int64_t wanted) {
  std::vector<NativeAttribute> given;
  for (const auto& [name, dtype, bytes] : attributes) {
    given.push_back({name, dtype, std::string(bytes.c_str(), bytes.size())});
  }
  return NativeTable::Global().Insert(
      std::make_shared<FfiHandler>(label, reinterpret_cast<void*>(address), std::move(given)),
      wanted);
}

}  // namespace

void DefineNative(nb::module_& m) {
  m.attr("MAX_NATIVE_ARGUMENTS") = kMaxNativeArguments;
  m.def(
      "register_c_function", &RegisterCFunction, nb::arg("label"), nb::arg("address"),
      nb::arg("arguments"), nb::arg("takes_sizes"), nb::arg("returns_status"),
      nb::arg("wanted") = 0,
      "Register a C function (native_code.h); return its id, which is never used again. "
      "Profiles, statistics and errors call it `label`. Its memory has to stay until it is "
      "unregistered. `wanted` is the id that it should have, if no other has had that; 0 for any.");
  m.def("register_ffi_handler", &RegisterFfiHandler, nb::arg("label"), nb::arg("address"),
        nb::arg("attributes"), nb::arg("wanted") = 0,
        "Register a handler of XLA's FFI likewise. Attributes are (name, FFI element type, bytes), "
        "and (name, 0, text) for a text.");
  m.def(
      "unregister_native",
      [](int64_t id, nb::object owner) { NativeTable::Global().Remove(id, std::move(owner)); },
      nb::arg("id"), nb::arg("owner"),
      "Forget an id. Calls that are under way keep `owner`, which holds the code. Unknown ids are "
      "no error.");
  m.def(
      "answer_native",
      [](int64_t id, nb::object answer) { NativeTable::Global().Answer(id, std::move(answer)); },
      nb::arg("id"), nb::arg("answer").none(),
      "Let `answer` answer the calls of an id (native_table.h), or nothing where it is None. "
      "Unknown ids are not an error.");
}

}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallNativeHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, [](XLA_FFI_CallFrame& call) {
    int64_t id = 0;
    hostcall::AttributeReader(call.attrs).Take("callback", id).End();
    return hostcall::CallOf(id, hostcall::NativeFrame(call));
  });
}
