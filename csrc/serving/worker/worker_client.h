// Calls of Python functions in worker processes, for programs that hold no Python.
//
// A worker is a process that runs `hostcall worker`. docs/worker-protocol.md describes the
// protocol, and the environment variables that name workers. This code does not know TensorFlow:
// dtypes are the numbers of its DataType, and codes those of absl::StatusCode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hostcall::serving {

// An argument of a call. The caller owns the memory that it refers to.
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

// Receiver of a call's results, each once and in order. Its methods run on the thread of the call,
// only after the worker has reported success. If it refuses a result, the call is an error.
class ResultSink {
 public:
  virtual ~ResultSink() = default;

  // Returns memory for a result of numbers, written before the next call; nullptr refuses it.
  // `bytes` fits the shape and the wanted dtype. If it is 0, any pointer will do.
  virtual char* Allocate(size_t index, const std::vector<int64_t>& shape, size_t bytes) = 0;
  // Announces a result of strings; false refuses it.
  virtual bool AllocateStrings(size_t index, const std::vector<int64_t>& shape) = 0;
  // Gives the elements of that result, one after another.
  virtual void SetString(size_t index, size_t element, std::string_view text) = 0;
};

using Shapes = std::vector<std::vector<int64_t>>;

// Outcome of one call.
struct Outcome {
  int code = 0;  // 0 is success
  std::string message;

  bool ok() const { return code == 0; }
};

// Calls a Python function in a worker that the environment names, or starts a worker first. Any
// number of threads may call it at a time, in a forked child too. It throws nothing, and it ends:
// with DEADLINE_EXCEEDED if the worker takes too long.
Outcome CallWorker(const WorkerCall& call, ResultSink& sink);

// Asks a worker, for a compiler, for the result shapes of a call. Its arguments have shapes, but no
// bytes or strings. All sizes are known, or the Outcome is an error that says how to fix it.
Outcome AskShapes(const WorkerCall& call, Shapes& shapes);

// Returns the function's name for messages: the name in its token, or the token's first bytes.
std::string LabelOfToken(std::string_view token);

}  // namespace hostcall::serving
