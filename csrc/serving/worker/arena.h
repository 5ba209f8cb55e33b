// Memory that a client shares with a worker: a file without a name, one for each connection.
//
// The client uses system calls and does not map the file, so that nothing the worker does to it
// ends this process. The worker may map it: it never shrinks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "descriptor.h"
#include "frames.h"
#include "worker_client.h"

namespace hostcall::serving {

class Arena {
 public:
  // Throws a Failure if the system cannot provide the memory.
  Arena();

  int fd() const { return file_.get(); }

  // Writes arguments one after another and returns their places. Throws a Failure if they need more
  // than `limit` bytes, or do not fit their own dtypes and shapes.
  std::vector<ArrayPlace> Write(const std::vector<Argument>& arguments, uint64_t limit);

  // Hands results to the sink. Throws BadFrame if a place is invalid or beyond `limit`, and a
  // Failure if the sink refuses a result.
  void Read(const std::vector<ArrayPlace>& results, uint64_t limit, ResultSink& sink) const;

  // Frees memory after a call that needed much.
  void Trim();

 private:
  void WriteAt(uint64_t offset, std::string_view bytes);
  void ReadAt(uint64_t offset, char* bytes, size_t count) const;
  void ReadStrings(size_t index, const ArrayPlace& place, int64_t count, ResultSink& sink) const;

  Descriptor file_;
};

}  // namespace hostcall::serving
