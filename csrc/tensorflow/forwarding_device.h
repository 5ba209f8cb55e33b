// Base of the devices that programs seem to run on: it forwards to a device of TensorFlow's.
#pragma once

#include "tensorflow/core/common_runtime/device.h"

namespace hostcall {

class ForwardingDevice : public tensorflow::Device {
 public:
  explicit ForwardingDevice(tensorflow::Device* device)
      : Device(device->env(), device->attributes()), device_(device) {}

  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes attributes) override {
    return device_->GetAllocator(attributes);
  }
  const CpuWorkerThreads* tensorflow_cpu_worker_threads() const override {
    return device_->tensorflow_cpu_worker_threads();
  }
  tsl::thread::ThreadPool* tensorflow_device_thread_pool() override {
    return device_->tensorflow_device_thread_pool();
  }
  bool has_eigen_cpu_device() const override { return device_->has_eigen_cpu_device(); }
  const Eigen::ThreadPoolDevice* eigen_cpu_device() override { return device_->eigen_cpu_device(); }
  tensorflow::DeviceBase* UnderlyingDevice() override { return device_->UnderlyingDevice(); }
  const tensorflow::DeviceBase* UnderlyingDevice() const override {
    return device_->UnderlyingDevice();
  }
  absl::Status MakeTensorFromProto(const tensorflow::TensorProto& proto,
                                   const tensorflow::AllocatorAttributes attributes,
                                   tensorflow::Tensor* tensor) override {
    return device_->MakeTensorFromProto(proto, attributes, tensor);
  }
  absl::Status TryGetDeviceContext(tensorflow::DeviceContext** context) override {
    return device_->TryGetDeviceContext(context);
  }
  absl::Status Sync() override { return device_->Sync(); }
  // Of a device with streams; XLA reads sizes that only the run knows on them.
  const AcceleratorDeviceInfo* tensorflow_accelerator_device_info() const override {
    return device_->tensorflow_accelerator_device_info();
  }

 protected:
  tensorflow::Device* device() { return device_; }

 private:
  tensorflow::Device* const device_;
};

}  // namespace hostcall
