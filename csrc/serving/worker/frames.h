// Messages over the socket: headers and bodies, as docs/worker-protocol.md describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker_client.h"

namespace hostcall::serving {

inline constexpr size_t kMaxBody = 1 << 20;
inline constexpr size_t kMaxToken = 1 << 18;
inline constexpr size_t kMaxArrays = 1024;
inline constexpr size_t kMaxRank = 254;

enum class Kind : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kCall = 3,
  kResults = 4,
  kError = 5,
  kPing = 6,
  kPong = 7,
  kShapes = 8,
};

struct Header {
  Kind kind = Kind::kHello;
  uint32_t body_size = 0;
  uint32_t number = 0;  // of the request; its reply has the same one
};

inline constexpr size_t kHeaderSize = 16;

// An array in the arena.
struct ArrayPlace {
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct Welcome {
  uint32_t pid = 0;
  uint64_t max_arena = 0;
};

// Returns a header and a body in one.
std::string EncodeFrame(Kind kind, uint32_t number, std::string_view body);
std::string EncodeHello(uint64_t max_arena);
// Throws a Failure if the call exceeds the limits of a frame.
std::string EncodeCall(const WorkerCall& call, const std::vector<ArrayPlace>& arguments);

// Throw BadFrame if the bytes are malformed.
Header DecodeHeader(std::string_view bytes);
Welcome DecodeWelcome(std::string_view body);
std::vector<ArrayPlace> DecodeResults(std::string_view body);
Outcome DecodeError(std::string_view body);

// Returns the size of an element, by the number of its dtype in TensorFlow; 0 for strings, and for
// dtypes that cannot be sent.
size_t ElementSize(int32_t dtype);
inline constexpr int32_t kString = 7;

// Returns the number of elements, or -1 if a size is negative or the number is too large.
int64_t CountElements(const std::vector<int64_t>& shape);

}  // namespace hostcall::serving
