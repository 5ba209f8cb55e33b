// Handlers that were built with another version of XLA's FFI than TensorFlow's.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "compat/ffi.h"
#include "compat/xla_api.h"
#include "module.h"
#include "runtime/capsules.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// A handler is a bare function, so each relay has code of its own. jaxlib has some sixty handlers.
constexpr size_t kMostRelays = 512;

std::array<XLA_FFI_Handler*, kMostRelays> relayed;  // an entry stays as it is; under the GIL
size_t relays_taken = 0;

// Refuses what handlers of newer versions call in another form than TensorFlow's XLA has it, or
// what it does not have at all. They would crash.
XLA_FFI_Error* Refuse(void*) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message =
      "the handler asks for its state, or for an extension of XLA's FFI. TensorFlow's XLA cannot "
      "give it either: handlers of jax.ffi.register_ffi_target are called there for the stage of "
      "execution, with arrays, attributes, scratch memory and threads.";
  args.errc = XLA_FFI_Error_Code_UNIMPLEMENTED;
  return xla::ffi::GetXlaFfiApi()->XLA_FFI_Error_Create(&args);
}

// The functions that handlers may call: TensorFlow's, then those of later versions than 0.2.
struct Functions {
  XLA_FFI_Api common;
  decltype(&Refuse) later[16];
};

const Functions& RelayedFunctions() {
  static const Functions functions = [] {
    const XLA_FFI_Api* api = xla::ffi::GetXlaFfiApi();
    Functions made{};
    // Older versions have fewer.
    const size_t size = std::min(api->struct_size, sizeof(made.common));
    std::memcpy(&made.common, api, size);
    auto* rest = reinterpret_cast<decltype(&Refuse)*>(reinterpret_cast<char*>(&made) + size);
    std::fill(rest, std::end(made.later), &Refuse);
    made.common.XLA_FFI_State_Set = reinterpret_cast<XLA_FFI_State_Set*>(&Refuse);
    made.common.XLA_FFI_State_Get = reinterpret_cast<XLA_FFI_State_Get*>(&Refuse);
    return made;
  }();
  return functions;
}

// Calls the handler of an entry. XLA asks each handler for its version, and refuses newer ones than
// its own: it is told its own version.
template <size_t entry>
XLA_FFI_Error* Relay(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Handler* handler = relayed[entry];
  if (compat::AsksForMetadata(*frame)) return compat::Describe(handler, frame);
  frame->api = &RelayedFunctions().common;
  return handler(frame);
}

template <size_t... entries>
constexpr auto MakeRelays(std::index_sequence<entries...>) {
  return std::array{&Relay<entries>...};
}

constexpr auto kRelays = MakeRelays(std::make_index_sequence<kMostRelays>());

// Returns the handler in a capsule, of any name; null if `stages` lacks the stage.
XLA_FFI_Handler* HandlerOf(const nb::dict& stages, const char* stage) {
  if (!stages.contains(stage)) return nullptr;
  const auto capsule = nb::cast<nb::capsule>(stages[stage]);
  return reinterpret_cast<XLA_FFI_Handler*>(capsule.data());
}

// Registers relays of the handlers, one for each stage that there is.
void RegisterRelayed(const nb::dict& stages, const std::string& name) {
  constexpr std::pair<const char*, XLA_FFI_Handler * XLA_FFI_Handler_Bundle::*> kStages[] = {
      {"instantiate", &XLA_FFI_Handler_Bundle::instantiate},
      {"prepare", &XLA_FFI_Handler_Bundle::prepare},
      {"initialize", &XLA_FFI_Handler_Bundle::initialize},
      {"execute", &XLA_FFI_Handler_Bundle::execute},
  };
  if (relays_taken + std::size(kStages) > kMostRelays) {
    throw nb::import_error("TensorFlow's XLA has been given all handlers that hostcall can relay");
  }
  XLA_FFI_Handler_Bundle bundle{};
  for (const auto& [stage, member] : kStages) {
    XLA_FFI_Handler* handler = HandlerOf(stages, stage);
    if (handler == nullptr) continue;
    relayed[relays_taken] = handler;
    bundle.*member = kRelays[relays_taken++];
  }
  const nb::object error = TakeText(compat::Register(bundle, name));
  if (error.is_valid()) throw nb::import_error(nb::cast<std::string>(error).c_str());
}

}  // namespace

nb::object TakeText(XLA_FFI_Error* error) {
  if (error == nullptr) return nb::object();
  const XLA_FFI_Api* api = xla::ffi::GetXlaFfiApi();
  XLA_FFI_Error_GetMessage_Args message{};
  message.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  message.error = error;
  api->XLA_FFI_Error_GetMessage(&message);
  nb::str text(message.message);
  XLA_FFI_Error_Destroy_Args destroy{};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api->XLA_FFI_Error_Destroy(&destroy);
  return text;
}

void DefineRelays(nb::module_& m) {
  m.def("register_relayed", &RegisterRelayed, nb::arg("stages"), nb::arg("name"),
        "Register FFI handlers with TensorFlow's XLA, by the names of their stages, whatever "
        "version of the FFI they were built with: the caller has compared the versions. Raises "
        "ImportError when XLA refuses them, as it does a second handler of the name.");
}

}  // namespace hostcall
