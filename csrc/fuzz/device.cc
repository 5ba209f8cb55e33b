#include "device.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "cuda/fake_cuda.h"

namespace nb = nanobind;

namespace hostcall::fuzz {
namespace {

std::atomic<size_t> abandoned{0};

uint64_t ToAddress(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

std::shared_ptr<void> DeviceMemory(const void* data, size_t size) {
  return {reinterpret_cast<void*>(fake_cuda_allocate(data, size)),
          [](void* pointer) { fake_cuda_release(ToAddress(pointer)); }};
}

void ReadDevice(const void* address, void* to, size_t size) {
  fake_cuda_read(ToAddress(address), to, size);
}

Launch::Launch() : stream_(fake_cuda_create_stream()) { fake_cuda_activate(/*other=*/false); }

Launch::~Launch() {
  abandoned += fake_cuda_destroy_stream(stream_);
  if (fake_cuda_is_active()) return;
  std::fprintf(stderr, "fake CUDA: the handler left the thread with another context\n");
  std::abort();
}

void DefineDevice(nb::module_& m) {
  m.def(
      "fail_cuda",
      [](const std::string& function, int first, int count, int code) {
        fake_cuda_fail(function.c_str(), first, count, code);
      },
      nb::arg("function"), nb::arg("first") = 1, nb::arg("count") = 1, nb::arg("code") = 700,
      "Lets calls of a function of the driver fail with the code: those from the `first`-th on, "
      "`count` of them.");
  m.def(
      "leave_context", [] { fake_cuda_activate(/*other=*/true); },
      "Makes another context current on this thread, as libraries do that choose a device.");
  m.def("device_allocations", &fake_cuda_allocations, "How much memory the device has given.");
  m.def(
      "pinned",
      [] {
        std::pair<size_t, size_t> pinned;
        fake_cuda_pinned(&pinned.first, &pinned.second);
        return pinned;
      },
      "How many bytes of the host are pinned, and how often some were since this was asked last.");
  m.def(
      "abandoned_copies", [] { return abandoned.exchange(0); },
      "How many copies nobody had waited for when their call ended, since this was asked last.");
}

}  // namespace hostcall::fuzz
