// Calls of Python functions in worker processes, for programs that hold no Python.
//
// A worker is a process that runs `hostcall worker`. docs/worker-protocol.md describes what goes
// over the wire, and the environment variables that say where workers are. Nothing in here knows
// TensorFlow: dtypes are the numbers of its DataType, and codes those of absl::StatusCode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hostcall::serving {

// An argument of a call. The caller owns what it refers to.
struct Argument {
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  std::string_view bytes;                 // of numbers, in C order
  std::vector<std::string_view> strings;  // the elements of DT_STRING, in C order
};

struct WorkerCall {
  std::string_view op;  // "PyFunc", "PyFuncStateless" or "EagerPyFunc"
  std::string_view token;
  std::vector<Argument> arguments;
  std::vector<int32_t> result_dtypes;
};

// Takes the results of a call, each once and in order. It is called on the thread of the call, and
// not at all before the worker has said that the call succeeded. A result that it refuses makes the
// call an error.
class ResultSink {
 public:
  virtual ~ResultSink() = default;

  // Memory for a result of numbers, which is written before the next call; nullptr refuses it.
  // `bytes` fits the shape and the wanted dtype, and may be 0; then any pointer will do.
  virtual char* Allocate(size_t index, const std::vector<int64_t>& shape, size_t bytes) = 0;
  // Announces a result of strings; false refuses it.
  virtual bool AllocateStrings(size_t index, const std::vector<int64_t>& shape) = 0;
  // Gives the elements of that, one after the other.
  virtual void SetString(size_t index, size_t element, std::string_view text) = 0;
};

// What has become of a call.
struct Outcome {
  int code = 0;  // 0 is success
  std::string message;

  bool ok() const { return code == 0; }
};

// Calls a Python function in one of the workers that the environment names, or starts one first.
// Any thread may call it, any number at a time, and in a forked child too. It throws nothing, and
// it ends: with DEADLINE_EXCEEDED where the worker takes too long.
Outcome CallWorker(const WorkerCall& call, ResultSink& sink);

// Asks a worker for the shapes of the results of a call, whose arguments have shapes and neither
// bytes nor strings: for a compiler. All sizes are known, or it is an error that says what to do.
Outcome AskShapes(const WorkerCall& call, std::vector<std::vector<int64_t>>& shapes);

// What messages call the function of a token: the name in it, or its first bytes.
std::string LabelOfToken(std::string_view token);

}  // namespace hostcall::serving
