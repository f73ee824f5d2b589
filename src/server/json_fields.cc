#include "server/json_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "text/utf8.h"

namespace fathom {

std::string json_line(const Json& value) {
  return value.dump(-1, ' ', false, nlohmann::detail::error_handler_t::replace);
}

std::string describe_json(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = json_line(value);
  constexpr size_t kShownBytes = 60;
  if (text.size() <= kShownBytes) return text;
  size_t cut = kShownBytes;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

Error wrong_json(std::string_view path, std::string_view expected, const Json& found) {
  return Error::invalid("{}: expected {}, found {}", path, expected, describe_json(found));
}

Result<Json> parse_request_json(std::string_view body) {
  if (json_is_deeper_than(body, kRequestDepthMax))
    return Error::invalid("body: expected JSON nested at most {} levels deep, found more", kRequestDepthMax);
  if (json_is_wider_than(body, kJsonMembersMax))
    return Error::invalid("body: expected objects of at most {} members, found one with more", kJsonMembersMax);
  if (!is_valid_utf8(body)) return Error::invalid("body: expected UTF-8, found other bytes");
  try {
    Json value = Json::parse(body);
    if (!value.is_object()) return wrong_json("body", "a JSON object", value);
    return value;
  } catch (const nlohmann::json::parse_error& error) {
    return Error::invalid("body: expected JSON, found something else at byte {}", error.byte);
  } catch (const nlohmann::json::exception&) {
    return Error::invalid("body: a number in it is beyond what a double can hold");
  }
}

Result<Fields> Fields::of(const Json& value, std::string path) {
  if (!value.is_object()) return wrong_json(path, "an object", value);
  return Fields(value, std::move(path));
}

const Json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string Fields::path_of(const char* name) const {
  return path_.empty() ? std::string(name) : path_ + "." + name;
}

Result<std::optional<double>> Fields::number(const char* name, double low, double high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<double>();
  const double found = value->is_number() ? value->get<double>() : NAN;
  if (!(found >= low && found <= high))
    return wrong_json(path_of(name), fmt::format("a number from {} to {}", low, high), *value);
  return std::optional<double>(found);
}

Result<std::optional<int64_t>> Fields::integer(const char* name, int64_t low, int64_t high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<int64_t>();
  const auto wrong = [&] {
    return wrong_json(path_of(name), fmt::format("a whole number from {} to {}", low, high), *value);
  };
  int64_t found = 0;
  if (value->is_number_unsigned()) {
    const auto wide = value->get<uint64_t>();
    if (wide > static_cast<uint64_t>(INT64_MAX)) return wrong();
    found = static_cast<int64_t>(wide);
  } else if (value->is_number_integer()) {
    found = value->get<int64_t>();
  } else if (value->is_number_float()) {
    const auto real = value->get<double>();
    if (!(std::abs(real) < 9e15) || real != std::floor(real)) return wrong();
    found = static_cast<int64_t>(real);
  } else {
    return wrong();
  }
  if (found < low || found > high) return wrong();
  return std::optional<int64_t>(found);
}

Result<std::optional<bool>> Fields::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return wrong_json(path_of(name), "true or false", *value);
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<std::string>> Fields::text(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong_json(path_of(name), "a string", *value);
  return std::optional<std::string>(value->get<std::string>());
}

Result<const Json*> Fields::object(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) return wrong_json(path_of(name), "an object", *value);
  return value;
}

Result<const Json*> Fields::array(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) return wrong_json(path_of(name), "an array", *value);
  return value;
}

Result<std::vector<int32_t>> read_ids(const Json& value, const std::string& path, int32_t vocab_size) {
  if (!value.is_array()) return wrong_json(path, "an array of token ids", value);
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool is_id = item.is_number_integer() && item.get<double>() >= 0 && item.get<double>() < vocab_size;
    if (!is_id)
      return wrong_json(fmt::format("{}[{}]", path, ids.size()),
                        fmt::format("a token id from 0 to {}", vocab_size - 1), item);
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

}  // namespace fathom
