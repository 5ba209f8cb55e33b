#include "frames.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "failure.h"

namespace hostcall::serving {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

constexpr uint32_t kMagic = 0x50574348;  // "HCWP"
constexpr uint16_t kVersion = 1;

// Indexed by TensorFlow's number of the dtype: float32, float64, int32, uint8, ...
constexpr std::array<uint8_t, 34> kElementSizes = {0, 4, 8, 4, 1, 2, 1,  0, 8, 8, 1, 1,
                                                   1, 4, 2, 2, 2, 2, 16, 2, 0, 0, 4, 8,
                                                   1, 1, 1, 1, 1, 1, 1,  1, 1, 1};

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Text(std::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Number() {
    const std::string_view bytes = Bytes(sizeof(T));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string_view Text() { return Bytes(Number<uint32_t>()); }
  std::string_view Bytes(size_t count) {
    if (count > rest_.size()) throw BadFrame("a frame ends too soon");
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  void End() const {
    if (!rest_.empty()) throw BadFrame("a frame has more in it than it should");
  }

 private:
  std::string_view rest_;
};

uint16_t OpNumber(std::string_view op) {
  constexpr std::string_view kOps[] = {"PyFunc", "PyFuncStateless", "EagerPyFunc"};
  const auto* found = std::find(std::begin(kOps), std::end(kOps), op);
  if (found == std::end(kOps)) {
    throw Failure(kInvalidArgument,
                  "hostcall: an op " + std::string(op) + " calls no Python function.");
  }
  return static_cast<uint16_t>(found - std::begin(kOps) + 1);
}

void Check(bool fits, const char* what, size_t limit) {
  if (fits) return;
  throw Failure(kResourceExhausted, std::string("hostcall: a call of a Python worker may have ") +
                                        what + " of at most " + std::to_string(limit) + ".");
}

}  // namespace

std::string EncodeFrame(Kind kind, uint32_t number, std::string_view body) {
  Check(body.size() <= kMaxBody, "a frame", kMaxBody);
  Writer frame;
  frame.Number(kMagic);
  frame.Number(kVersion);
  frame.Number(kind);
  frame.Number(static_cast<uint32_t>(body.size()));
  frame.Number(number);
  return frame.Take().append(body);
}

std::string EncodeHello(uint64_t max_arena) {
  Writer body;
  body.Number(max_arena);
  return body.Take();
}

std::string EncodeCall(const WorkerCall& call, const std::vector<ArrayPlace>& arguments) {
  Check(call.token.size() <= kMaxToken, "a token", kMaxToken);
  Check(arguments.size() <= kMaxArrays, "a number of arguments", kMaxArrays);
  Check(call.result_dtypes.size() <= kMaxArrays, "a number of results", kMaxArrays);
  Writer body;
  body.Number(OpNumber(call.op));
  body.Number(static_cast<uint16_t>(arguments.size()));
  body.Number(static_cast<uint16_t>(call.result_dtypes.size()));
  body.Text(call.token);
  for (const ArrayPlace& argument : arguments) {
    Check(argument.shape.size() <= kMaxRank, "a rank", kMaxRank);
    body.Number(argument.dtype);
    body.Number(static_cast<uint32_t>(argument.shape.size()));
    for (const int64_t size : argument.shape) body.Number(size);
    body.Number(argument.offset);
    body.Number(argument.size);
  }
  for (const int32_t dtype : call.result_dtypes) body.Number(dtype);
  return body.Take();
}

Header DecodeHeader(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.Number<uint32_t>() != kMagic) throw BadFrame("no frame begins like that");
  const auto version = reader.Number<uint16_t>();
  if (version != kVersion) {
    throw BadFrame("its version of the protocol is " + std::to_string(version) + ", and not 1");
  }
  Header header;
  header.kind = static_cast<Kind>(reader.Number<uint16_t>());
  header.body_size = reader.Number<uint32_t>();
  header.number = reader.Number<uint32_t>();
  reader.End();
  if (header.body_size > kMaxBody) throw BadFrame("a frame is too long");
  return header;
}

Welcome DecodeWelcome(std::string_view body) {
  Reader reader(body);
  Welcome welcome;
  welcome.pid = reader.Number<uint32_t>();
  welcome.max_arena = reader.Number<uint64_t>();
  reader.End();
  return welcome;
}

std::vector<ArrayPlace> DecodeResults(std::string_view body) {
  Reader reader(body);
  const size_t count = reader.Number<uint16_t>();
  if (count > kMaxArrays) throw BadFrame("there are too many results");
  std::vector<ArrayPlace> places(count);
  for (ArrayPlace& place : places) {
    place.dtype = reader.Number<int32_t>();
    const size_t rank = reader.Number<uint32_t>();
    if (rank > kMaxRank) throw BadFrame("a result has too many dimensions");
    for (size_t i = 0; i < rank; ++i) place.shape.push_back(reader.Number<int64_t>());
    place.offset = reader.Number<uint64_t>();
    place.size = reader.Number<uint64_t>();
  }
  reader.End();
  return places;
}

Outcome DecodeError(std::string_view body) {
  Reader reader(body);
  const auto code = reader.Number<uint32_t>();
  const std::string_view text = reader.Text();
  reader.End();
  if (code == 0 || code > kLastCode) throw BadFrame("an error has no code");
  return {static_cast<int>(code), std::string(text)};
}

size_t ElementSize(int32_t dtype) {
  const auto index = static_cast<uint32_t>(dtype);
  return index < kElementSizes.size() ? kElementSizes[index] : 0;
}

int64_t CountElements(const std::vector<int64_t>& shape) {
  constexpr int64_t kMost = int64_t{1} << 62;
  // Multiply only nonzero sizes, so that no reader's product overflows, in any order.
  int64_t product = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && product > kMost / size)) return -1;
    empty |= size == 0;
    product *= std::max<int64_t>(size, 1);
  }
  return empty ? 0 : product;
}

}  // namespace hostcall::serving
