// Reads the members of a JSON object and says of the first wrong one where it is, what was expected and found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom::measure {

/// Members that are wrong or missing read as empty values, and the first of them is kept for `error`: a reader
/// takes all it wants and asks once at the end.
class JsonMembers {
 public:
  /// `where` names the object in messages: "writing.json: texts[3]". The object outlives this.
  JsonMembers(const nlohmann::json& object, std::string where);

  std::string text(const char* name);
  bool flag(const char* name);
  int64_t whole(const char* name, int64_t low, int64_t high);
  uint64_t seed(const char* name);
  double number(const char* name);
  /// Null where the member is missing or null.
  std::optional<double> maybe_number(const char* name);
  std::vector<std::string> texts(const char* name);
  /// An empty one where it is missing or wrong.
  const nlohmann::json& array(const char* name);
  const nlohmann::json& object(const char* name);
  /// "WHERE: NAME[INDEX]"
  std::string place(const char* name, size_t index) const;
  std::string place(const char* name) const { return where_ + ": " + name; }

  /// Something else is wrong with a member.
  void refuse(const char* name, std::string_view expected, const nlohmann::json& found);
  Result<void> result() const;

 private:
  /// Null where it is missing, which is then the error.
  const nlohmann::json* find(const char* name, std::string_view expected);

  const nlohmann::json& object_;
  std::string where_;
  std::optional<Error> error_;
};

/// Refuses what is no JSON object, or nests or spreads so much that it could only be meant to harm.
Result<nlohmann::json> parse_json_object(std::string_view text, const std::string& where);
Result<nlohmann::json> read_json_object(const std::string& path);
/// Indented and with a line feed at the end; bytes that are no UTF-8 become U+FFFD. Whole or not at all.
Result<void> write_json_file(const std::string& path, const nlohmann::ordered_json& json, uint32_t mode = 0644);
Result<void> write_text_file(const std::string& path, std::string_view text, uint32_t mode = 0644);
/// A discarded value for what is no JSON, and for what nests so deep that walking it could exhaust the stack.
nlohmann::json parse_shallow(std::string_view text);
/// On one line of valid UTF-8, cut at a whole character where it is longer: for messages.
std::string shown_text(std::string_view text, size_t bytes_max = 400);
std::string shown_json(const nlohmann::json& value, size_t bytes_max = 400);
std::string sha256_hex(std::string_view text);

}  // namespace fathom::measure
