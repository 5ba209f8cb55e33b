// The memory that a client shares with a worker: a file without a name, one for each connection.
//
// It is read and written by calls and not mapped, so that nothing the other side does to it ends
// this process. The other side may map it: it never shrinks.
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
  // Throws a Failure where the system has no such memory.
  Arena();

  int fd() const { return file_.get(); }

  // Writes arguments one after the other; their places. Throws a Failure where they need more than
  // `limit` bytes, or are no such arrays as they say.
  std::vector<ArrayPlace> Write(const std::vector<Argument>& arguments, uint64_t limit);

  // Hands results to the sink. Throws BadFrame where the places are none or lie beyond `limit`, and
  // a Failure where the sink refuses one.
  void Read(const std::vector<ArrayPlace>& results, uint64_t limit, ResultSink& sink) const;

  // Gives memory back, where a call has needed much.
  void Trim();

 private:
  void WriteAt(uint64_t offset, std::string_view bytes);
  void ReadAt(uint64_t offset, char* bytes, size_t count) const;
  void ReadStrings(size_t index, const ArrayPlace& place, int64_t count, ResultSink& sink) const;

  Descriptor file_;
};

}  // namespace hostcall::serving
