// A device in the host's memory that TensorFlow takes for a GPU: TensorFlow treats its values as it
// does a GPU's, and XLA compiles for its kind, into code that the CPU runs.
//
// It knows its own memory, and ends the process if one of its copies is given the wrong side.
#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/device/device_event_mgr.h"
#include "tensorflow/core/common_runtime/gpu_device_context.h"
#include "tensorflow/core/common_runtime/local_device.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/logging.h"
#include "xla/stream_executor/event.h"
#include "xla/stream_executor/host/host_stream.h"
#include "xla/stream_executor/platform_manager.h"
#include "xla/stream_executor/stream.h"
#include "xla/stream_executor/stream_executor.h"

namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::Device;
using tensorflow::StatusCallback;
using tensorflow::Tensor;

// The memory of the device. Leaked: tensors may outlive it.
class Memory : public tensorflow::Allocator {
 public:
  static Memory& Global() {
    static auto* memory = new Memory();
    return *memory;
  }

  std::string Name() override { return "fake_gpu"; }

  void* AllocateRaw(size_t alignment, size_t size) override {
    void* pointer = tensorflow::cpu_allocator()->AllocateRaw(alignment, size);
    std::lock_guard<std::mutex> lock(mutex_);
    sizes_[reinterpret_cast<uintptr_t>(pointer)] = size;
    return pointer;
  }

  void DeallocateRaw(void* pointer) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      sizes_.erase(reinterpret_cast<uintptr_t>(pointer));
    }
    tensorflow::cpu_allocator()->DeallocateRaw(pointer);
  }

  bool Holds(const Tensor& tensor) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.tensor_data().data());
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = sizes_.upper_bound(address);
    if (next == sizes_.begin()) return false;
    --next;
    return address < next->first + next->second;
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, size_t> sizes_;
};

// Checks that a tensor lies where a copy is told that it does.
void Check(const Tensor& tensor, bool on_device, const char* what) {
  if (!tensorflow::DataTypeCanUseMemcpy(tensor.dtype()) || tensor.TotalBytes() == 0) return;
  CHECK_EQ(Memory::Global().Holds(tensor), on_device)
      << "on the wrong side: the " << what << " of a copy, " << tensor.DebugString();
}

// The host's stream, which does everything at once. TensorFlow reuses the events of a GPU.
class Stream : public stream_executor::host::HostStream {
 public:
  using HostStream::HostStream;

  absl::Status RecordEvent(stream_executor::Event* event) override {
    if (event->PollForStatus() == stream_executor::Event::Status::kComplete) {
      return absl::OkStatus();
    }
    return HostStream::RecordEvent(event);
  }
};

// TensorFlow's own context for GPUs, on streams of the host.
class Context : public tensorflow::GPUDeviceContext {
 public:
  explicit Context(stream_executor::Stream* stream)
      : GPUDeviceContext(0, stream, stream, stream, {stream}, tensorflow::cpu_allocator()) {}

  void CopyCPUTensorToDevice(const Tensor* from, Device* device, Tensor* to, StatusCallback done,
                             bool sync) const override {
    Check(*from, false, "source");
    Check(*to, true, "destination");
    GPUDeviceContext::CopyCPUTensorToDevice(from, device, to, std::move(done), sync);
  }

  void CopyDeviceTensorToCPU(const Tensor* from, absl::string_view edge, Device* device, Tensor* to,
                             StatusCallback done) override {
    Check(*from, true, "source");
    Check(*to, false, "destination");
    GPUDeviceContext::CopyDeviceTensorToCPU(from, edge, device, to, std::move(done));
  }

  void CopyTensorInSameDevice(const Tensor* from, Device* device, Tensor* to,
                              StatusCallback done) const override {
    Check(*from, true, "source");
    Check(*to, true, "destination");
    GPUDeviceContext::CopyTensorInSameDevice(from, device, to, std::move(done));
  }
};

class FakeGpu : public tensorflow::LocalDevice {
 public:
  FakeGpu(const tensorflow::SessionOptions& options, const std::string& name)
      : LocalDevice(options, BuildDeviceAttributes(name, tensorflow::DEVICE_GPU,
                                                   tensorflow::Bytes(1 << 30), {}, "a fake GPU")) {
    auto* platform = stream_executor::PlatformManager::PlatformWithName("Host").value();
    stream_executor::StreamExecutor* executor = platform->ExecutorForDevice(0).value();
    stream_ = std::make_unique<Stream>(executor);
    context_.reset(new Context(stream_.get()));
    info_.stream = stream_.get();
    info_.default_context = context_.get();
    info_.event_mgr = tensorflow::EventMgrFactory::Singleton()->GetEventMgr(executor, {});
    info_.gpu_id = 0;
    set_tensorflow_accelerator_device_info(&info_);
  }

  tensorflow::Allocator* GetAllocator(AllocatorAttributes attributes) override {
    if (attributes.on_host()) return tensorflow::cpu_allocator();
    return &Memory::Global();
  }

  absl::Status MakeTensorFromProto(const tensorflow::TensorProto& proto,
                                   AllocatorAttributes attributes, Tensor* tensor) override {
    Tensor parsed;
    if (!parsed.FromProto(tensorflow::cpu_allocator(), proto)) {
      return absl::InvalidArgumentError("a malformed tensor");
    }
    // Lists stay as they are: constant ones are empty.
    if (attributes.on_host() || !tensorflow::DataTypeCanUseMemcpy(parsed.dtype())) {
      *tensor = parsed;
      return absl::OkStatus();
    }
    *tensor = Tensor(&Memory::Global(), parsed.dtype(), parsed.shape());
    return context_->CopyCPUTensorToDeviceSync(&parsed, this, tensor);
  }

  absl::Status TryGetDeviceContext(tensorflow::DeviceContext** context) override {
    context_->Ref();
    *context = context_.get();
    return absl::OkStatus();
  }

  absl::Status Sync() override { return absl::OkStatus(); }

 private:
  std::unique_ptr<stream_executor::Stream> stream_;
  tensorflow::core::RefCountPtr<Context> context_;
  AcceleratorDeviceInfo info_;
};

class Factory : public tensorflow::DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    devices->push_back("/physical_device:GPU:0");
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const tensorflow::SessionOptions& options, const std::string& prefix,
                             std::vector<std::unique_ptr<Device>>* devices) override {
    devices->push_back(std::make_unique<FakeGpu>(options, prefix + "/device:GPU:0"));
    return absl::OkStatus();
  }
};

}  // namespace

NB_MODULE(_fake_gpu, m) {
  m.doc() = "A GPU of TensorFlow's in the host's memory, for tests.";
  m.def(
      "compile_for_gpus",
      [] {
        tensorflow::XlaOpRegistry::RegisterBackend(tensorflow::DEVICE_GPU_XLA_JIT,
                                                   tensorflow::kGpuAllTypes,
                                                   [](tensorflow::KernelDef*) { return true; });
      },
      "Has a TensorFlow without GPUs compile for them as far as it does for any. To be called "
      "before "
      "anything is compiled.");
  m.def(
      "add_gpu",
      [] {
        tensorflow::DeviceFactory::Register(tensorflow::DEVICE_GPU, std::make_unique<Factory>(),
                                            /*priority=*/210, /*is_pluggable_device=*/false);
      },
      "Gives TensorFlow the device GPU:0. To be called before it has looked for devices.");
}
