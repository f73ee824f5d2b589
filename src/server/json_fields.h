// Reads the members of a JSON request; every error names the member, what was expected and what was found.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

using Json = nlohmann::ordered_json;

/// Deepest nesting of a request that is read.
constexpr int kRequestDepthMax = 128;

/// Parses a request's body, which must be an object. kInvalidArgument says where the text breaks.
Result<Json> parse_request_json(std::string_view body);

/// One line, invalid UTF-8 replaced.
std::string json_line(const Json& value);
/// "an object", "\"some text\"", "-3": what a value looks like in an error, at most some 60 bytes.
std::string describe_json(const Json& value);
/// `path: expected ..., found ...`
Error wrong_json(std::string_view path, std::string_view expected, const Json& found);

/// A view of an object that must outlive it. Members that are absent or null count as not given.
class Fields {
 public:
  /// `path`: of the object, empty for the request itself.
  explicit Fields(const Json& object, std::string path = "") : object_(object), path_(std::move(path)) {}
  /// `value` must be an object.
  static Result<Fields> of(const Json& value, std::string path);

  const Json* find(const char* name) const;
  std::string path_of(const char* name) const;
  const std::string& path() const { return path_; }
  const Json& json() const { return object_; }

  Result<std::optional<double>> number(const char* name, double low, double high) const;
  /// Whole numbers only; 3.0 counts as one.
  Result<std::optional<int64_t>> integer(const char* name, int64_t low, int64_t high) const;
  Result<std::optional<bool>> boolean(const char* name) const;
  Result<std::optional<std::string>> text(const char* name) const;
  /// An object, or null when it is not given.
  Result<const Json*> object(const char* name) const;
  Result<const Json*> array(const char* name) const;

 private:
  const Json& object_;
  std::string path_;
};

/// An array of token ids in [0, vocab_size).
Result<std::vector<int32_t>> read_ids(const Json& value, const std::string& path, int32_t vocab_size);

}  // namespace fathom
