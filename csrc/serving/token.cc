#include "token.h"

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "google/protobuf/struct.pb.h"
#include "hostcall_saved_fields.h"
#include "json.h"

namespace hostcall::serving {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr char kQualified[] = "hostcall:";
constexpr char kVersion[] = "1:";

// Exception for a token whose function has a pickle but no name.
struct Pickled {
  std::string title;
};

// The largest integer up to which doubles have no gaps.
constexpr int64_t kMaxSize = int64_t{1} << 53;

std::vector<Size> ReadSizes(const Value& value) {
  if (!value.has_list_value()) throw Wrong{"the shape of a result is not a list"};
  std::vector<Size> sizes;
  for (const Value& one : value.list_value().values()) {
    const Object object(AsObject(one, "a size"), "a size", saved_fields::kSize);
    sizes.push_back({object.Number("size", -1, -1, kMaxSize),
                     static_cast<int>(object.Number("input", 0, 0, 10'000)),
                     static_cast<int>(object.Number("dimension", 0, 0, 10'000))});
  }
  return sizes;
}

NativeAttribute ReadAttribute(const Value& value) {
  const Object object(AsObject(value, "an attribute"), "an attribute", saved_fields::kAttribute);
  NativeAttribute attribute{object.Text("name"),
                            static_cast<int>(object.Number("dtype", 0, 0, 255)), ""};
  if (!absl::Base64Unescape(object.Text("base64"), &attribute.bytes) ||
      (attribute.dtype != 0 && attribute.bytes.size() > 16)) {
    throw Wrong{"an attribute has no value"};
  }
  return attribute;
}

// Reads a text that C can read as well: not empty, and without null characters.
std::string ReadName(const Object& object, const char* key) {
  std::string text = object.Text(key);
  if (text.empty() || text.find('\0') != std::string::npos) {
    throw Wrong{absl::StrCat("the ", key, " of native code is not a name")};
  }
  return text;
}

// Computes the same checksum as zlib.
uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0xedb88320 : crc >> 1;
  }
  return ~crc;
}

// Reads JSON that follows its CRC-32: a wrong size in it could end the process.
NativeTarget ReadNative(std::string_view text) {
  const std::string_view json = text.substr(std::min<size_t>(text.size(), 8));
  if (text.substr(0, 8) != absl::StrFormat("%08x", Crc32(json))) {
    throw Wrong{"what it says of native code was altered"};
  }
  const Struct fields = ParseJson(json);
  const Object object(fields, "native code", saved_fields::kNativeRecord);
  NativeTarget native;
  native.library = ReadName(object, "library");
  native.symbol = ReadName(object, "symbol");
  const std::string kind = object.Text("kind");
  if (kind != "c" && kind != "ffi") throw Wrong{"the kind of native code is unknown"};
  native.is_handler = kind == "ffi";
  native.arguments = static_cast<size_t>(object.Number("arguments", 0, 0, kMaxNativeArguments));
  native.takes_sizes = object.Flag("sizes");
  native.returns_status = object.Flag("status");
  for (const Value& one : object.List("attributes").values()) {
    native.attributes.push_back(ReadAttribute(one));
  }
  if (object.Find("results") != nullptr) {
    native.results.emplace();
    for (const Value& one : object.List("results").values()) {
      native.results->push_back(ReadSizes(one));
    }
  }
  return native;
}

// Returns the shape of `{"spec": [dtype, sizes]}`, or nullopt if the spec leaves a part open.
std::optional<std::vector<int64_t>> ReadShape(const Value& value) {
  const auto& fields = AsObject(value, "a spec").fields();
  const auto spec = fields.find("spec");
  if (spec == fields.end()) return std::nullopt;
  if (spec->second.list_value().values_size() != 2)
    throw Wrong{"a spec is not a dtype with a shape"};
  const Value& shape = spec->second.list_value().values(1);
  if (shape.has_null_value()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Value& size : shape.list_value().values()) {
    if (size.has_null_value()) return std::nullopt;
    const double number = size.has_number_value() ? size.number_value() : -1;
    if (!(number >= 0 && number <= static_cast<double>(kMaxSize))) {
      throw Wrong{"a size in a spec is not a number"};
    }
    sizes.push_back(static_cast<int64_t>(number));
  }
  return sizes;
}

Object ReadRecord(const Struct& fields) { return Object(fields, "a call", saved_fields::kRecord); }

// The limit of gradients of gradients in a token.
constexpr int kMaxOrders = 100;

Token ReadToken(const Struct& fields) {
  const Struct* innermost = &fields;
  int orders = 0;
  while (const Struct* of = ReadRecord(*innermost).Inner("of")) {
    innermost = of;
    if (++orders > kMaxOrders) throw Wrong{"too many gradients of gradients"};
  }
  const Object call = ReadRecord(*innermost);
  const Struct* named = call.Inner("function");
  if (named == nullptr) throw Wrong{"it names no function"};
  const Object function(*named, "a function", saved_fields::kFunctionRecord);
  std::string label = function.Text("name");
  if (label.empty()) label = function.Text("place");
  if (const Struct* pickled = function.Inner("pickled"); label.empty() && pickled != nullptr) {
    throw Pickled{Object(*pickled, "a pickle", saved_fields::kPickled).Text("title")};
  }
  if (label.empty()) throw Wrong{"it names no function"};
  Token token;
  token.label = orders == 0 ? label : absl::StrCat("the gradient of ", label);
  if (const std::string at = call.Text("at"); !at.empty()) {
    absl::StrAppend(&token.label, ", called at ", at);
  }
  if (function.Find("native") != nullptr && orders == 0) {
    if (call.Text("kind") != "numpy") throw Wrong{"native code takes arrays, and no tensors"};
    token.native = ReadNative(function.Text("native"));
  }
  if (orders > 0) return token;
  if (const Struct* declared = call.Inner("declared")) {
    token.pure = Object(*declared, "a declaration", saved_fields::kDeclared).Flag("pure");
  }
  for (const Value& spec : call.List("static").values()) {
    token.static_shapes.push_back(ReadShape(spec));
  }
  return token;
}

std::string Shown(std::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, 200)), text.size() > 200 ? "..." : "",
                      "'");
}

absl::Status Damaged(const std::string& text, std::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(
      "hostcall: the graph was damaged or altered: the token of a host function in it cannot be "
      "read: ",
      problem, ". The token is ", Shown(text),
      ". Nothing was called for it. Save the model again, or take the file from where you trust "
      "it."));
}

absl::Status OfAnotherProcess(const std::string& text) {
  return absl::FailedPreconditionError(absl::StrCat(
      "hostcall: the graph calls a Python function by a key of the process that traced it, ",
      Shown(text),
      ", and nothing can find the function by that. Save the model with hostcall imported before "
      "it is traced:\n\n    import hostcall\n\nWhere that was done, a warning has told which "
      "functions had no name, and how to give them one."));
}

absl::Status OnlyPickled(const std::string& title) {
  return absl::FailedPreconditionError(absl::StrCat(
      "hostcall: the Python function ", absl::CHexEscape(title),
      " has no name. The SavedModel carries it as a pickle, which is for Python processes. Give it "
      "a name before the model is saved:\n\n    hostcall.register(function, "
      "\"mymodel::function\")"));
}

}  // namespace

absl::StatusOr<Token> ParseToken(const std::string& text) {
  std::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kQualified)) return OfAnotherProcess(text);
  if (!absl::ConsumePrefix(&rest, kVersion)) {
    const std::string_view version = rest.substr(0, std::min<size_t>(rest.find(':'), 20));
    return Damaged(text, absl::StrCat("its version ", Shown(version),
                                      " is not 1; a newer hostcall may have written it"));
  }
  try {
    return ReadToken(ParseJson(rest));
  } catch (const Wrong& wrong) {
    return Damaged(text, wrong.what);
  } catch (const Pickled& pickled) {
    return OnlyPickled(pickled.title);
  }
}

}  // namespace hostcall::serving
