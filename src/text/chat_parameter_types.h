// Which tool parameters are strings, by the tools' schemas.
//
// Models write `string="false"` for a string, or "False" where a boolean is due. Clients check arguments
// against the schema they declared, so the schema outranks the model's flag.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_message.h"

namespace fathom {

enum class ParameterType : uint8_t {
  kUnknown,    // no schema, or it allows strings among others: the model's flag decides
  kString,     // only strings
  kNotString,  // anything but strings
};

/// Immutable; safe on any number of threads.
class ParameterTypes {
 public:
  /// Reads parameters.properties.X.type of each tool. What it does not understand is kUnknown, never an
  /// error: the tools were checked when they were rendered.
  explicit ParameterTypes(const std::vector<ChatTool>& tools);

  /// `tool` is "name" or "namespace::name".
  ParameterType type_of(std::string_view tool, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, ParameterType, std::less<>>, std::less<>> tools_;
};

}  // namespace fathom
