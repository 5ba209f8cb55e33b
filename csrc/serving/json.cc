#include "json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/json/json.h"

namespace hostcall::serving {

using google::protobuf::ListValue;
using google::protobuf::Struct;
using google::protobuf::Value;

Struct ParseJson(std::string_view text) {
  Struct fields;
  const absl::Status parsed = google::protobuf::json::JsonStringToMessage(text, &fields);
  if (parsed.ok()) return fields;
  throw Wrong{absl::StrCat("it is not JSON: ", parsed.message().substr(0, 200))};
}

const Struct& AsObject(const Value& value, const char* what) {
  if (!value.has_struct_value()) throw Wrong{absl::StrCat(what, " is not an object")};
  return value.struct_value();
}

Object::Object(const Struct& object, std::string name, absl::Span<const std::string_view> known)
    : fields_(object.fields()), name_(std::move(name)) {
  for (const auto& [key, value] : fields_) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw Wrong{absl::StrCat("'", absl::CHexEscape(key), "' is not a field of ", name_)};
    }
  }
}

const Value* Object::Find(const std::string& key) const {
  const auto found = fields_.find(key);
  const bool is_there = found != fields_.end() && !found->second.has_null_value();
  return is_there ? &found->second : nullptr;
}

const Struct* Object::Inner(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->has_struct_value()) throw Unfit(key, "an object");
  return &value->struct_value();
}

std::string Object::Text(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr) return "";
  if (!value->has_string_value()) throw Unfit(key, "a text");
  return value->string_value();
}

bool Object::Flag(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr) return false;
  if (!value->has_bool_value()) throw Unfit(key, "a truth value");
  return value->bool_value();
}

int64_t Object::Number(const std::string& key, int64_t otherwise, int64_t least,
                       int64_t most) const {
  const Value* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->has_number_value()) throw Unfit(key, "a number");
  const double number = value->number_value();
  if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)) ||
      std::floor(number) != number) {
    throw Unfit(key, "a number of the right size");
  }
  return static_cast<int64_t>(number);
}

const ListValue& Object::List(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr) return ListValue::default_instance();
  if (!value->has_list_value()) throw Unfit(key, "a list");
  return value->list_value();
}

Wrong Object::Unfit(const std::string& key, const char* wanted) const {
  return {absl::StrCat("'", key, "' of ", name_, " is not ", wanted)};
}

}  // namespace hostcall::serving
