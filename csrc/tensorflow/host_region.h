// Regions: connected host ops of a program, which TensorFlow's own CPU kernels run from inside it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starters.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace hostcall {

// The kernels of one region, made for one device. Runs may overlap.
class Region {
 public:
  // Creates the region of `function`, which lists its nodes in an order in which they can run, and
  // calls other functions only by attributes.
  static absl::StatusOr<std::unique_ptr<Region>> Create(
      const tensorflow::FunctionDef& function, tensorflow::FunctionLibraryRuntime* runtime);

  // Return the dtypes of the inputs and of the results, as TensorFlow's kernels have them.
  const std::vector<tensorflow::DataType>& input_types() const { return input_types_; }
  const std::vector<tensorflow::DataType>& output_types() const { return output_types_; }

  // Returns the number of values in a run.
  int slots() const { return slots_; }

  // Returns true if a kernel waits for others, so none of XLA's few threads may run the region.
  bool waits() const { return waits_; }

  // Returns true if a kernel may keep an input, so that inputs that XLA owns must be copied.
  bool keeps_inputs() const { return keeps_inputs_; }

  // Runs the kernels one after the other, in a context like `outer`, that of the launching kernel.
  absl::Status Run(const tensorflow::OpKernelContext& outer, std::vector<tensorflow::Tensor> inputs,
                   std::vector<tensorflow::Tensor>* outputs) const;

 private:
  struct Step {
    std::unique_ptr<tensorflow::OpKernel> kernel;
    std::vector<int> inputs;  // their slots
    int first_output = 0;     // the slot
    std::vector<tensorflow::AllocatorAttributes> output_attributes;
  };
  class Builder;

  absl::Status RunStep(const Step& step, tensorflow::OpKernelContext::Params& params,
                       std::vector<tensorflow::Tensor>& slots) const;

  std::vector<tensorflow::DataType> input_types_;
  std::vector<tensorflow::DataType> output_types_;
  std::vector<Step> steps_;
  std::vector<tensorflow::Tensor> constants_;  // in the slots after the inputs
  std::vector<int> results_;                   // their slots
  int slots_ = 0;
  bool waits_ = false;
  bool keeps_inputs_ = false;
};

// One launch of a program with regions, which finds this by its first argument: the address.
//
// The program has references, which are numbers, in the place of values that XLA cannot hold:
// strings, variants, and resources other than variables.
class RegionScope {
 public:
  RegionScope(const tensorflow::OpKernelContext* outer,
              const std::vector<std::unique_ptr<Region>>* regions)
      : outer_(outer), regions_(regions) {}
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

  const tensorflow::OpKernelContext& outer() const { return *outer_; }
  // Returns the run, by which the starter of the launch is found.
  const starters::StartedRun& run() const { return run_; }
  // Returns null if no region has the index.
  const Region* region(int64_t index) const;

  // Keeps a value until the launch has ended; returns the reference to it.
  int64_t Keep(tensorflow::Tensor value);
  absl::StatusOr<tensorflow::Tensor> ValueOf(int64_t reference);

 private:
  const tensorflow::OpKernelContext* const outer_;
  const starters::StartedRun run_ = starters::CurrentOrNew();
  const std::vector<std::unique_ptr<Region>>* const regions_;
  std::mutex mutex_;
  std::deque<tensorflow::Tensor> values_;
};

// Returns true if a program has references in the place of values of a dtype.
bool IsReference(tensorflow::DataType dtype);

// Function that returns the value of a region's input, if it is known at compile time.
using KnownValue = std::function<std::optional<tensorflow::Tensor>(int input)>;

// Infers the shapes of a region's results for inputs of the given shapes. Asks `known_value` only
// for inputs whose values a shape function needs.
absl::StatusOr<std::vector<tensorflow::PartialTensorShape>> InferRegionShapes(
    const tensorflow::FunctionDef& region, int graph_def_version,
    const std::vector<tensorflow::PartialTensorShape>& inputs, const KnownValue& known_value);

}  // namespace hostcall
