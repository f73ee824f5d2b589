// What JSON Schemas that apply to one value together say of it, gathered type by type.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/schema_numbers.h"

namespace fathom {

using SchemaJson = nlohmann::ordered_json;

constexpr size_t kSchemaBytesMax = size_t{1} << 20;
constexpr int kSchemaDepthMax =
    128;  // of the text, and of schemas within schemas when references are followed
constexpr int kSchemaMembersMax = 1024;      // of one object of the text, and of one value
constexpr size_t kSchemaParallelMax = 64;    // schemas that apply to one value
constexpr int64_t kSchemaCountMax = 65'535;  // minLength, maxItems, ...

enum SchemaType : uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,  // numbers that are no integers, or spelled with a point; "number" is both
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyType = 127,
};

/// A schema of the document and where it is.
struct SchemaPlace {
  const SchemaJson* schema = nullptr;
  std::string path;         // "#/properties/age"
  bool chosen_any = false;  // its anyOf has been replaced by one of the choices
  bool chosen_one = false;  // the same for oneOf
};
/// Schemas that all apply to the same value.
using SchemaSet = std::vector<SchemaPlace>;

struct SchemaMember {
  std::string name;
  SchemaSet value;
  bool required = false;
};
struct SchemaWord {
  std::string word, path;
};
struct SchemaChoice {
  size_t place = 0;  // in SchemaShape::places
  bool one = false;  // oneOf
  SchemaSet choices;
};

struct SchemaShape {
  uint8_t types = kAnyType;                       // 0: no value
  std::string path;                               // of what narrowed it most, for messages
  std::optional<std::vector<SchemaJson>> values;  // enum and const
  NumberRange numbers;
  int64_t min_length = 0, max_length = -1;  // -1: without end
  std::optional<SchemaWord> pattern, format;
  std::vector<SchemaSet> first_items;  // prefixItems
  SchemaSet items;                     // of the rest; empty: anything
  int64_t min_items = 0, max_items = -1;
  std::vector<SchemaMember> members;   // in the order of "properties"
  SchemaSet additional;                // empty: anything
  std::optional<SchemaChoice> choice;  // an anyOf or oneOf that is still open
  SchemaSet places;                    // references and allOf resolved

  bool constrains_numbers = false, constrains_strings = false, constrains_arrays = false,
       constrains_objects = false;
};

/// The text as JSON, within the limits above.
Result<SchemaJson> parse_schema(std::string_view text);
/// kInvalidArgument names the keyword that is not supported.
Result<SchemaShape> gather_shape(const SchemaJson& document, const SchemaSet& set);
/// The type of a value; integers that are spelled with a point are kInteger, too.
uint8_t type_of_value(const SchemaJson& value);
/// The same text for values that are equal as JSON Schema has it: members in any order, 1 and 1.0.
std::string canonical_value(const SchemaJson& value);

/// What tells choices apart.
struct ChoiceFacts {
  uint8_t types = kAnyType;
  std::optional<std::set<std::string>> values;             // canonical
  std::map<std::string, std::set<std::string>> constants;  // of members that have to be there
};
Result<ChoiceFacts> choice_facts(const SchemaJson& document, const SchemaPlace& choice);
/// Whether no value can satisfy both.
bool provably_disjoint(const ChoiceFacts& a, const ChoiceFacts& b);

}  // namespace fathom
