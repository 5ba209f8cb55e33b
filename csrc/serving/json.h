// Strict reader of JSON from files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "google/protobuf/struct.pb.h"

namespace hostcall::serving {

// Problem with JSON. The reading functions throw it, and their callers catch it.
struct Wrong {
  std::string what;
};

// Parses an object. Throws Wrong if the text is not JSON, not UTF-8 or nested too deeply.
google::protobuf::Struct ParseJson(std::string_view text);

// Returns the object in a value. Throws Wrong if the value is not an object.
const google::protobuf::Struct& AsObject(const google::protobuf::Value& value, const char* what);

// Fields of an object. Throws Wrong for a field that is not in `known`, and for a value of another
// type.
class Object {
 public:
  Object(const google::protobuf::Struct& object, std::string name,
         absl::Span<const std::string_view> known);

  // Return null if the field is missing or null.
  const google::protobuf::Value* Find(const std::string& key) const;
  const google::protobuf::Struct* Inner(const std::string& key) const;

  // Return "", false, `otherwise` or an empty list if the field is missing or null.
  std::string Text(const std::string& key) const;
  bool Flag(const std::string& key) const;
  int64_t Number(const std::string& key, int64_t otherwise, int64_t least, int64_t most) const;
  const google::protobuf::ListValue& List(const std::string& key) const;

 private:
  Wrong Unfit(const std::string& key, const char* wanted) const;

  const google::protobuf::Map<std::string, google::protobuf::Value>& fields_;
  const std::string name_;
};

}  // namespace hostcall::serving
