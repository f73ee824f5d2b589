#include "measure/json_members.h"

#include <array>
#include <cmath>
#include <span>

#include "base/file.h"
#include "base/json_depth.h"
#include "base/sha256.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;
constexpr size_t kShownBytesMax = 80;

std::string shown(const Json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return shown_json(value, kShownBytesMax);
}

}  // namespace

JsonMembers::JsonMembers(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) error_ = Error::invalid("{}: expected an object, found {}", where_, shown(object));
}

std::string JsonMembers::place(const char* name, size_t index) const {
  return fmt::format("{}: {}[{}]", where_, name, index);
}

const Json* JsonMembers::find(const char* name, std::string_view expected) {
  if (error_) return nullptr;
  const auto member = object_.find(name);
  if (member != object_.end()) return &*member;
  error_ = Error::invalid("{}: {}: expected {}, found nothing", where_, name, expected);
  return nullptr;
}

void JsonMembers::refuse(const char* name, std::string_view expected, const Json& found) {
  if (!error_) error_ = Error::invalid("{}: {}: expected {}, found {}", where_, name, expected, shown(found));
}

std::string JsonMembers::text(const char* name) {
  const Json* member = find(name, "a string");
  if (member == nullptr) return "";
  if (member->is_string()) return member->get<std::string>();
  refuse(name, "a string", *member);
  return "";
}

bool JsonMembers::flag(const char* name) {
  const Json* member = find(name, "true or false");
  if (member == nullptr) return false;
  if (member->is_boolean()) return member->get<bool>();
  refuse(name, "true or false", *member);
  return false;
}

int64_t JsonMembers::whole(const char* name, int64_t low, int64_t high) {
  const std::string expected = fmt::format("a whole number from {} to {}", low, high);
  const Json* member = find(name, expected);
  if (member == nullptr) return low;
  const bool fits = member->is_number_integer() &&
                    (!member->is_number_unsigned() || member->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (fits && member->get<int64_t>() >= low && member->get<int64_t>() <= high) return member->get<int64_t>();
  refuse(name, expected, *member);
  return low;
}

uint64_t JsonMembers::seed(const char* name) {
  const Json* member = find(name, "a whole number of 0 or more");
  if (member == nullptr) return 0;
  if (member->is_number_unsigned()) return member->get<uint64_t>();
  refuse(name, "a whole number of 0 or more", *member);
  return 0;
}

double JsonMembers::number(const char* name) {
  const Json* member = find(name, "a number");
  if (member == nullptr) return 0;
  if (member->is_number() && std::isfinite(member->get<double>())) return member->get<double>();
  refuse(name, "a number", *member);
  return 0;
}

std::optional<double> JsonMembers::maybe_number(const char* name) {
  const auto member = object_.is_object() ? object_.find(name) : object_.end();
  if (error_ || member == object_.end() || member->is_null()) return std::nullopt;
  return number(name);
}

std::vector<std::string> JsonMembers::texts(const char* name) {
  std::vector<std::string> result;
  for (const Json& member : array(name)) {
    if (member.is_string())
      result.push_back(member.get<std::string>());
    else
      refuse(name, "an array of strings", member);
  }
  return result;
}

const Json& JsonMembers::array(const char* name) {
  static const Json kEmpty = Json::array();
  const Json* member = find(name, "an array");
  if (member == nullptr || member->is_array()) return member == nullptr ? kEmpty : *member;
  refuse(name, "an array", *member);
  return kEmpty;
}

const Json& JsonMembers::object(const char* name) {
  static const Json kEmpty = Json::object();
  const Json* member = find(name, "an object");
  if (member == nullptr || member->is_object()) return member == nullptr ? kEmpty : *member;
  refuse(name, "an object", *member);
  return kEmpty;
}

Result<void> JsonMembers::result() const {
  if (error_) return *error_;
  return {};
}

Result<Json> parse_json_object(std::string_view text, const std::string& where) {
  if (json_is_deeper_than(text, kPackJsonDepthMax))
    return Error::invalid("{}: expected at most {} levels of JSON, found more", where, kPackJsonDepthMax);
  if (json_is_wider_than(text, kJsonMembersMax))
    return Error::invalid("{}: expected objects of at most {} members, found more", where, kJsonMembersMax);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return Error::invalid("{}: expected JSON: {}", where, error.what());
  }
  if (!json.is_object()) return Error::invalid("{}: expected a JSON object, found {}", where, shown(json));
  return json;
}

Result<Json> read_json_object(const std::string& path) {
  FATHOM_ASSIGN(const std::string text, read_text_file(path, kFileBytesMax));
  return parse_json_object(text, path);
}

Result<void> write_text_file(const std::string& path, std::string_view text, uint32_t mode) {
  const std::array parts = {std::as_bytes(std::span(text.data(), text.size()))};
  return write_file_atomically(path, parts, mode);
}

Result<void> write_json_file(const std::string& path, const nlohmann::ordered_json& json, uint32_t mode) {
  return write_text_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", mode);
}

Json parse_shallow(std::string_view text) {
  if (json_is_deeper_than(text, kPackJsonDepthMax)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

std::string shown_text(std::string_view text, size_t bytes_max) {
  std::string shown = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  shown = shown.substr(1, shown.size() - 2);  // without the quotes; line feeds and the like are escaped
  if (shown.size() <= bytes_max) return shown;
  size_t bytes = bytes_max;
  while (bytes > 0 && (static_cast<unsigned char>(shown[bytes]) & 0xC0) == 0x80) --bytes;
  return shown.substr(0, bytes) + "...";
}

std::string shown_json(const Json& value, size_t bytes_max) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= bytes_max) return text;
  size_t bytes = bytes_max;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes) + "...";
}

std::string sha256_hex(std::string_view text) {
  return hex_string(sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace fathom::measure
