#include "device.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cuda/fake_cuda.h"

namespace nb = nanobind;

namespace hostcall::fakes {
namespace {

std::atomic<size_t> abandoned{0};

uint64_t ToAddress(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

std::shared_ptr<void> DeviceMemory(const void* data, size_t size, int number) {
  return {reinterpret_cast<void*>(fake_cuda_allocate(data, size, number)),
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

namespace {

// An array on the device, as in libraries like CuPy.
class DeviceArray {
 public:
  DeviceArray(const nb::bytes& data, int number)
      : size_(data.size()), memory_(DeviceMemory(data.data(), data.size(), number)) {}

  uint64_t address() const { return ToAddress(memory_.get()); }

  nb::bytes Read() const {
    std::string bytes(size_, '\0');
    ReadDevice(memory_.get(), bytes.data(), size_);
    return nb::bytes(bytes.data(), bytes.size());
  }

  void WriteLater(const nb::bytes& data, uint64_t stream) const {
    fake_cuda_write_later(address(), data.data(), data.size(), reinterpret_cast<void*>(stream));
  }

  // Returns an object with DLPack's methods, which keeps `self`.
  static nb::object Exporter(const nb::object& self, const std::vector<size_t>& shape,
                             const std::vector<int64_t>& strides, std::pair<int, int> dtype,
                             std::pair<int, int> device) {
    const nb::dlpack::dtype type{static_cast<uint8_t>(dtype.first),
                                 static_cast<uint8_t>(dtype.second), 1};
    return nb::cast(nb::ndarray<nb::array_api>(
        nb::cast<const DeviceArray&>(self).memory_.get(), shape.size(), shape.data(), self,
        strides.empty() ? nullptr : strides.data(), type, device.first, device.second));
  }

 private:
  const size_t size_;
  const std::shared_ptr<void> memory_;
};

}  // namespace

void DefineDevice(nb::module_& m) {
  nb::class_<DeviceArray>(m, "DeviceArray", "Memory of a device, released with the object.")
      .def(nb::init<const nb::bytes&, int>(), nb::arg("data"), nb::arg("number") = 0)
      .def_prop_ro("address", &DeviceArray::address)
      .def("read", &DeviceArray::Read, "Its bytes, whatever streams have been given.")
      .def("write_later", &DeviceArray::WriteLater, nb::arg("data"), nb::arg("stream"),
           "Has a stream write the data when somebody waits for it.")
      .def(
          "exporter",
          [](const nb::object& self, const std::vector<size_t>& shape,
             const std::vector<int64_t>& strides, std::pair<int, int> dtype,
             std::pair<int, int> device) {
            return DeviceArray::Exporter(self, shape, strides, dtype, device);
          },
          nb::arg("shape"), nb::arg("strides"), nb::arg("dtype"), nb::arg("device"),
          "What has DLPack's methods, with its dtype and device.");
  m.def(
      "read_device",
      [](uint64_t address, size_t size) {
        std::string bytes(size, '\0');
        fake_cuda_read(address, bytes.data(), size);
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("address"), nb::arg("size"), "The bytes that lie on the device.");
  m.def(
      "create_stream", [] { return ToAddress(fake_cuda_create_stream()); },
      "A stream of somebody's own.");
  m.def(
      "destroy_stream",
      [](uint64_t stream) { return fake_cuda_destroy_stream(reinterpret_cast<void*>(stream)); },
      nb::arg("stream"), "Forgets it, and says how much it had not done.");
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

}  // namespace hostcall::fakes
