#include "grammar/schema_shape.h"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

/// Counts and limits what a document holds before it is built: members are looked up one by one.
class SchemaScan : public nlohmann::json_sax<SchemaJson> {
 public:
  std::string failure;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t& digits) override {
    if (digits.find_first_of(".eE") != digits.npos) return true;
    failure = fmt::format("expected integers of 64 bits, found {}", digits.substr(0, 40));
    return false;
  }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (++members_.back() <= kSchemaMembersMax) return true;
    failure = fmt::format("expected at most {} members of an object, found more at \"{}\"", kSchemaMembersMax,
                          name);
    return false;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    failure = error.what();
    if (const size_t end = failure.find("] "); failure.starts_with('[') && end != failure.npos)
      failure.erase(0, end + 2);
    return false;
  }

 private:
  bool open() {
    members_.push_back(0);
    if (members_.size() <= static_cast<size_t>(kSchemaDepthMax)) return true;
    failure = fmt::format("nests deeper than {} levels", kSchemaDepthMax);
    return false;
  }
  bool close() {
    members_.pop_back();
    return true;
  }
  std::vector<int> members_;
};

std::string below(const std::string& path, std::string_view key) {
  std::string escaped;
  for (const char letter : key) {
    if (letter == '~')
      escaped += "~0";
    else if (letter == '/')
      escaped += "~1";
    else
      escaped += letter;
  }
  return path + "/" + escaped;
}

constexpr std::string_view kAnnotations[] = {
    "title", "description", "default",    "example",  "examples",  "$schema",          "$comment",
    "$defs", "definitions", "deprecated", "readOnly", "writeOnly", "contentMediaType", "contentEncoding"};

class Gatherer {
 public:
  Gatherer(const SchemaJson& document, SchemaShape& shape) : document_(document), shape_(shape) {}

  Result<void> gather(const SchemaSet& set) {
    for (const SchemaPlace& place : set) FATHOM_TRY(flatten(place));
    for (const SchemaPlace& place : shape_.places) FATHOM_TRY(read(place));
    FATHOM_TRY(finish_arrays());
    return finish_objects();
  }

 private:
  template <class... Args>
  static Error fail(const std::string& path, fmt::format_string<Args...> text, Args&&... args) {
    return Error::invalid("schema {}: {}", path, fmt::format(text, std::forward<Args>(args)...));
  }

  void nothing(const std::string& path) {
    shape_.types = 0;
    shape_.path = path;
  }

  // Adds the place and all that it refers to.
  Result<void> flatten(const SchemaPlace& place) {
    const SchemaJson& schema = *place.schema;
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) nothing(place.path);
      return {};
    }
    if (!schema.is_object()) return fail(place.path, "expected a schema (an object, true or false)");
    if (std::find(chain_.begin(), chain_.end(), &schema) != chain_.end())
      return fail(place.path, "refers to itself without an end");
    const auto known = std::find_if(shape_.places.begin(), shape_.places.end(),
                                    [&](const SchemaPlace& other) { return other.schema == &schema; });
    if (known != shape_.places.end()) {
      known->chosen_any |= place.chosen_any;
      known->chosen_one |= place.chosen_one;
      return {};
    }
    if (shape_.places.size() >= kSchemaParallelMax || chain_.size() >= kSchemaParallelMax)
      return fail(place.path, "more than {} schemas apply to the same value", kSchemaParallelMax);
    shape_.places.push_back(place);
    chain_.push_back(&schema);
    if (const auto ref = schema.find("$ref"); ref != schema.end()) {
      FATHOM_ASSIGN(const SchemaPlace target, resolve(*ref, below(place.path, "$ref")));
      FATHOM_TRY(flatten(target));
    }
    if (const auto all = schema.find("allOf"); all != schema.end()) {
      FATHOM_ASSIGN(const SchemaSet parts, schema_list(*all, below(place.path, "allOf")));
      for (const SchemaPlace& part : parts) FATHOM_TRY(flatten(part));
    }
    chain_.pop_back();
    return {};
  }

  Result<SchemaPlace> resolve(const SchemaJson& ref, const std::string& path) const {
    if (!ref.is_string() || !ref.get_ref<const std::string&>().starts_with('#'))
      return fail(path, "expected a reference within the schema (\"#\" or \"#/$defs/name\")");
    const std::string& text = ref.get_ref<const std::string&>();
    std::string pointer;
    for (size_t at = 1; at < text.size(); ++at) {
      unsigned code = 0;
      if (text[at] == '%' && at + 2 < text.size() &&
          std::sscanf(text.substr(at + 1, 2).c_str(), "%2x", &code) == 1) {
        pointer += static_cast<char>(code);
        at += 2;
      } else {
        pointer += text[at];
      }
    }
    const SchemaJson* at = &document_;
    std::string_view left = pointer;
    while (!left.empty()) {
      if (left[0] != '/') return fail(path, "\"{}\" is no JSON pointer; anchors are not supported", text);
      left.remove_prefix(1);
      std::string key;
      for (; !left.empty() && left[0] != '/'; left.remove_prefix(1)) {
        if (left[0] == '~' && left.size() > 1 && (left[1] == '0' || left[1] == '1')) {
          left.remove_prefix(1);
          key += left[0] == '0' ? '~' : '/';
        } else {
          key += left[0];
        }
      }
      const SchemaJson* next = nullptr;
      if (at->is_object()) {
        if (const auto found = at->find(key); found != at->end()) next = &*found;
      } else if (at->is_array() && !key.empty() && key.size() < 6 &&
                 key.find_first_not_of("0123456789") == key.npos) {
        if (const size_t index = std::stoul(key); index < at->size()) next = &(*at)[index];
      }
      if (next == nullptr) return fail(path, "\"{}\" is not in the schema", text);
      at = next;
    }
    return SchemaPlace{at, "#" + pointer};
  }

  Result<SchemaSet> schema_list(const SchemaJson& list, const std::string& path) const {
    if (!list.is_array() || list.empty()) return fail(path, "expected a list of schemas that is not empty");
    SchemaSet set;
    for (size_t k = 0; k < list.size(); ++k) set.push_back({&list[k], fmt::format("{}/{}", path, k)});
    return set;
  }

  Result<void> read(const SchemaPlace& place) {
    const SchemaJson& schema = *place.schema;
    for (const auto& [key, value] : schema.items()) {
      const std::string path = below(place.path, key);
      if (key == "$ref" || key == "allOf" || key == "properties" || key == "required" ||
          key == "additionalProperties" || key == "items" || key == "prefixItems")
        continue;  // read before, or below with all the others
      if (std::find(std::begin(kAnnotations), std::end(kAnnotations), key) != std::end(kAnnotations))
        continue;
      if (key == "$id" && &schema == &document_) continue;
      if (key == "type")
        FATHOM_TRY(read_type(value, path));
      else if (key == "enum" || key == "const")
        FATHOM_TRY(read_values(key, value, path));
      else if (key == "anyOf" || key == "oneOf")
        FATHOM_TRY(read_choice(place, key == "oneOf", value, path));
      else if (key.ends_with("inimum") || key.ends_with("aximum"))
        FATHOM_TRY(read_bound(key, value, path));
      else if (key.starts_with("min") || key.starts_with("max"))
        FATHOM_TRY(read_count(key, value, path));
      else if (key == "pattern")
        FATHOM_TRY(read_word(shape_.pattern, value, path));
      else if (key == "format")
        FATHOM_TRY(read_word(shape_.format, value, path));
      else
        return fail(path, "the keyword \"{}\" is not supported", key);
    }
    return {};
  }

  void narrow(uint8_t types, const std::string& path) {
    if ((shape_.types & types) == shape_.types) return;
    shape_.types &= types;
    shape_.path = path;
  }

  Result<void> read_type(const SchemaJson& value, const std::string& path) {
    static const std::pair<std::string_view, int> kTypes[] = {
        {"null", kNull},     {"boolean", kBoolean}, {"integer", kInteger}, {"number", kInteger | kFraction},
        {"string", kString}, {"array", kArray},     {"object", kObject}};
    int types = 0;
    const auto add = [&](const SchemaJson& name) {
      for (const auto& [known, bits] : kTypes) {
        if (name != known) continue;
        types |= bits;
        return true;
      }
      return false;
    };
    if (value.is_array() && !value.empty()) {
      for (const SchemaJson& name : value)
        if (!add(name))
          return fail(path, "expected names of JSON types, found {}", name.dump().substr(0, 40));
    } else if (!add(value)) {
      return fail(path, "expected the name of a JSON type or a list of them, found {}",
                  value.dump().substr(0, 40));
    }
    narrow(static_cast<uint8_t>(types), path);
    return {};
  }

  Result<void> read_values(const std::string& key, const SchemaJson& value, const std::string& path) {
    if (key == "enum" && (!value.is_array() || value.empty()))
      return fail(path, "expected a list that is not empty");
    std::vector<SchemaJson> values;
    if (key == "const")
      values.push_back(value);
    else
      values.assign(value.begin(), value.end());
    if (shape_.values) {
      std::set<std::string> before;
      for (const SchemaJson& one : *shape_.values) before.insert(canonical_value(one));
      std::erase_if(values, [&](const SchemaJson& one) { return !before.contains(canonical_value(one)); });
    }
    shape_.values = std::move(values);
    values_path_ = path;
    return {};
  }

  Result<void> read_choice(const SchemaPlace& place, bool one, const SchemaJson& value,
                           const std::string& path) {
    FATHOM_ASSIGN(SchemaSet choices, schema_list(value, path));
    if (shape_.choice || (one ? place.chosen_one : place.chosen_any)) return {};
    shape_.choice = SchemaChoice{static_cast<size_t>(&place - shape_.places.data()), one, std::move(choices)};
    return {};
  }

  Result<void> read_bound(const std::string& key, const SchemaJson& value, const std::string& path) {
    const bool exclusive = key.starts_with("exclusive");
    const bool low = key == "minimum" || key == "exclusiveMinimum";
    if (!low && key != "maximum" && key != "exclusiveMaximum")
      return fail(path, "the keyword \"{}\" is not supported", key);
    if (!value.is_number()) return fail(path, "expected a number, found {}", value.dump().substr(0, 40));
    Result<Decimal> decimal =
        parse_decimal(value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump());
    if (!decimal.ok()) return fail(path, "{}", decimal.error().message);
    shape_.constrains_numbers = true;
    std::optional<NumberBound>& bound = low ? shape_.numbers.low : shape_.numbers.high;
    if (bound) {
      const int order = compare(*decimal, bound->value) * (low ? 1 : -1);
      if (order < 0) return {};
      if (order == 0) {
        bound->exclusive |= exclusive;
        return {};
      }
    }
    bound = NumberBound{*decimal, exclusive};
    return {};
  }

  Result<void> read_count(const std::string& key, const SchemaJson& value, const std::string& path) {
    int64_t* least = key == "minLength"  ? &shape_.min_length
                     : key == "minItems" ? &shape_.min_items
                                         : nullptr;
    int64_t* most = key == "maxLength" ? &shape_.max_length : key == "maxItems" ? &shape_.max_items : nullptr;
    if (least == nullptr && most == nullptr) return fail(path, "the keyword \"{}\" is not supported", key);
    const double count = value.is_number() ? value.get<double>() : -1;
    if (count < 0 || count > static_cast<double>(kSchemaCountMax) || count != std::floor(count))
      return fail(path, "expected an integer from 0 to {}, found {}", kSchemaCountMax,
                  value.dump().substr(0, 40));
    const auto whole = static_cast<int64_t>(count);
    (key.ends_with("Length") ? shape_.constrains_strings : shape_.constrains_arrays) = true;
    if (least != nullptr) *least = std::max(*least, whole);
    if (most != nullptr) *most = *most < 0 ? whole : std::min(*most, whole);
    return {};
  }

  Result<void> read_word(std::optional<SchemaWord>& word, const SchemaJson& value, const std::string& path) {
    if (!value.is_string()) return fail(path, "expected a string");
    const std::string& text = value.get_ref<const std::string&>();
    if (word && word->word != text) return fail(path, "two that apply to the same string are not supported");
    word = SchemaWord{text, path};
    shape_.constrains_strings = true;
    return {};
  }

  /// What each schema says of items, position by position.
  Result<void> finish_arrays() {
    size_t firsts = 0;
    for (const SchemaPlace& place : shape_.places) {
      if (const auto prefix = place.schema->find("prefixItems"); prefix != place.schema->end()) {
        FATHOM_ASSIGN(const SchemaSet list, schema_list(*prefix, below(place.path, "prefixItems")));
        firsts = std::max(firsts, list.size());
        shape_.constrains_arrays = true;
      }
    }
    shape_.first_items.resize(firsts);
    for (const SchemaPlace& place : shape_.places) {
      size_t own = 0;
      if (const auto prefix = place.schema->find("prefixItems"); prefix != place.schema->end())
        for (; own < prefix->size(); ++own)
          shape_.first_items[own].push_back(
              {&(*prefix)[own], fmt::format("{}/prefixItems/{}", place.path, own)});
      const auto items = place.schema->find("items");
      if (items == place.schema->end()) continue;
      const SchemaPlace rest{&*items, below(place.path, "items")};
      if (items->is_array())
        return fail(rest.path, "expected a schema; a list of them is written as prefixItems");
      shape_.constrains_arrays = true;
      for (size_t k = own; k < firsts; ++k) shape_.first_items[k].push_back(rest);
      shape_.items.push_back(rest);
    }
    return {};
  }

  SchemaMember& member(const std::string& name) {
    for (SchemaMember& known : shape_.members)
      if (known.name == name) return known;
    shape_.members.push_back({name, {}, false});
    return shape_.members.back();
  }

  /// What each schema says of members, name by name: each applies its own additionalProperties to the others'
  /// names.
  Result<void> finish_objects() {
    for (const SchemaPlace& place : shape_.places) {
      const auto properties = place.schema->find("properties");
      if (properties == place.schema->end()) continue;
      if (!properties->is_object()) return fail(below(place.path, "properties"), "expected an object");
      shape_.constrains_objects = true;
      for (const auto& [name, value] : properties->items()) {
        if (shape_.members.size() > static_cast<size_t>(kSchemaMembersMax))
          return fail(below(place.path, "properties"), "more than {} names", kSchemaMembersMax);
        member(name);
      }
    }
    for (const SchemaPlace& place : shape_.places) {
      const auto required = place.schema->find("required");
      if (required == place.schema->end()) continue;
      const std::string path = below(place.path, "required");
      if (!required->is_array()) return fail(path, "expected a list of names");
      shape_.constrains_objects = true;
      for (const SchemaJson& name : *required) {
        if (!name.is_string())
          return fail(path, "expected a list of names, found {}", name.dump().substr(0, 40));
        if (shape_.members.size() > static_cast<size_t>(kSchemaMembersMax))
          return fail(path, "more than {} names", kSchemaMembersMax);
        member(name.get<std::string>()).required = true;
      }
    }
    for (const SchemaPlace& place : shape_.places) {
      const auto properties = place.schema->find("properties");
      const auto additional = place.schema->find("additionalProperties");
      const SchemaPlace others{additional != place.schema->end() ? &*additional : nullptr,
                               below(place.path, "additionalProperties")};
      if (others.schema != nullptr) {
        shape_.constrains_objects = true;
        shape_.additional.push_back(others);
      }
      for (SchemaMember& one : shape_.members) {
        if (properties != place.schema->end()) {
          if (const auto own = properties->find(one.name); own != properties->end()) {
            one.value.push_back({&*own, below(below(place.path, "properties"), one.name)});
            continue;
          }
        }
        if (others.schema != nullptr) one.value.push_back(others);
      }
    }
    return finish_values();
  }

  /// Constants of types that do not apply go; beside other constraints each would have to be checked.
  Result<void> finish_values() {
    if (!shape_.values) return {};
    std::erase_if(*shape_.values,
                  [&](const SchemaJson& value) { return (type_of_value(value) & shape_.types) == 0; });
    int types = 0;
    for (const SchemaJson& value : *shape_.values) types |= type_of_value(value);
    narrow(static_cast<uint8_t>(types), values_path_);
    if ((shape_.constrains_numbers && (types & (kInteger | kFraction)) != 0) ||
        (shape_.constrains_strings && (types & kString) != 0) ||
        (shape_.constrains_arrays && (types & kArray) != 0) ||
        (shape_.constrains_objects && (types & kObject) != 0))
      return fail(values_path_, "constants beside other constraints of their type are not supported");
    return {};
  }

  const SchemaJson& document_;
  SchemaShape& shape_;
  std::vector<const SchemaJson*> chain_;
  std::string values_path_;
};

bool share_value(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& value) { return b.contains(value); });
}

std::set<std::string> canonical_values(const std::vector<SchemaJson>& values) {
  std::set<std::string> texts;
  for (const SchemaJson& value : values) texts.insert(canonical_value(value));
  return texts;
}

}  // namespace

Result<SchemaJson> parse_schema(std::string_view text) {
  if (text.size() > kSchemaBytesMax)
    return Error::invalid("schema: expected at most {} bytes, found {}", kSchemaBytesMax, text.size());
  SchemaScan scan;
  if (!SchemaJson::sax_parse(text, &scan)) return Error::invalid("schema: {}", scan.failure);
  return SchemaJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

Result<SchemaShape> gather_shape(const SchemaJson& document, const SchemaSet& set) {
  SchemaShape shape;
  FATHOM_TRY(Gatherer(document, shape).gather(set));
  return shape;
}

uint8_t type_of_value(const SchemaJson& value) {
  switch (value.type()) {
    case SchemaJson::value_t::null:
      return kNull;
    case SchemaJson::value_t::boolean:
      return kBoolean;
    case SchemaJson::value_t::number_integer:
    case SchemaJson::value_t::number_unsigned:
      return kInteger;
    case SchemaJson::value_t::number_float: {
      const auto number = value.get<double>();
      return number == std::floor(number) ? kInteger : kFraction;
    }
    case SchemaJson::value_t::string:
      return kString;
    case SchemaJson::value_t::array:
      return kArray;
    default:
      return kObject;
  }
}

std::string canonical_value(const SchemaJson& value) {
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (number == std::floor(number) && std::abs(number) < 0x1p63)
      return std::to_string(static_cast<int64_t>(number));
    return value.dump();
  }
  if (!value.is_structured()) return value.dump();
  if (value.is_array()) {
    std::string text = "[";
    for (const SchemaJson& one : value) text += canonical_value(one) + ",";
    return text + "]";
  }
  std::map<std::string, std::string> members;
  for (const auto& [name, one] : value.items()) members[SchemaJson(name).dump()] = canonical_value(one);
  std::string text = "{";
  for (const auto& [name, one] : members) text += name + ":" + one + ",";
  return text + "}";
}

Result<ChoiceFacts> choice_facts(const SchemaJson& document, const SchemaPlace& choice) {
  FATHOM_ASSIGN(const SchemaShape shape, gather_shape(document, {choice}));
  ChoiceFacts facts;
  facts.types = shape.types;
  if (shape.values) facts.values = canonical_values(*shape.values);
  for (const SchemaMember& member : shape.members) {
    if (!member.required) continue;
    FATHOM_ASSIGN(const SchemaShape value, gather_shape(document, member.value));
    if (value.values) facts.constants[member.name] = canonical_values(*value.values);
  }
  return facts;
}

bool provably_disjoint(const ChoiceFacts& a, const ChoiceFacts& b) {
  const int both = a.types & b.types;
  if (both == 0) return true;
  if (a.values && b.values && !share_value(*a.values, *b.values)) return true;
  if (both != kObject) return false;
  return std::any_of(a.constants.begin(), a.constants.end(), [&](const auto& constant) {
    const auto other = b.constants.find(constant.first);
    return other != b.constants.end() && !share_value(constant.second, other->second);
  });
}

}  // namespace fathom
