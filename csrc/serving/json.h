// JSON out of files, strictly read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "google/protobuf/struct.pb.h"

namespace hostcall::serving {

// Thrown where JSON is read, and caught where that is asked for: what is wrong with it.
struct Wrong {
  std::string what;
};

// Throws Wrong for what is no JSON, is no UTF-8 or is nested too deeply.
google::protobuf::Struct ParseJson(std::string_view text);

// Throws Wrong for what is no object.
const google::protobuf::Struct& AsObject(const google::protobuf::Value& value, const char* what);

// The fields of an object, which has none but the known ones. Everything throws Wrong for a value
// of another type.
class Object {
 public:
  Object(const google::protobuf::Struct& object, std::string name,
         absl::Span<const std::string_view> known);

  // Null where there is no such field.
  const google::protobuf::Value* Find(const std::string& key) const;
  const google::protobuf::Struct* Inner(const std::string& key) const;

  // "", false, `otherwise` and an empty list where there is no such field.
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
