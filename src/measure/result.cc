#include "measure/result.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/file.h"
#include "base/json_depth.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

// A run of five stages is some 20 kB with its ids; nothing that was measured comes near.
constexpr uint64_t kFileBytesMax = 256u << 20;
constexpr int kDepthMax = 16;  // the format needs 6

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Lists of numbers on one line, everything else on lines of its own: 256 ids are no 256 lines.
void print(const Json& json, const std::string& indent, std::string& text) {
  const bool is_plain = !json.is_structured() || json.empty() ||
                        (json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& item) {
                           return item.is_number();
                         }));
  if (is_plain) {
    text += line_of(json);
    return;
  }
  const std::string inner = indent + "  ";
  const char* separator = "\n";
  text += json.is_array() ? '[' : '{';
  for (const auto& item : json.items()) {
    text += separator + inner;
    if (json.is_object()) text += line_of(item.key()) + ": ";
    print(item.value(), inner, text);
    separator = ",\n";
  }
  text += '\n' + indent + (json.is_array() ? ']' : '}');
}

}  // namespace

bool has_failed(const Run& run) {
  return !run.error.empty() || std::any_of(run.stages.begin(), run.stages.end(), [](const Stage& stage) {
    return stage.status != StageStatus::kOk;
  });
}

Result<BenchResult> read_result(const std::string& path) {
  FATHOM_ASSIGN(const std::string text, read_text_file(path, kFileBytesMax));
  return parse_result(text, path);
}

Result<BenchResult> parse_result(std::string_view text, const std::string& where) {
  if (json_is_deeper_than(text, kDepthMax))
    return Error::invalid("{}: expected JSON nested at most {} levels deep, found more", where, kDepthMax);
  try {
    return result_from_json(Json::parse(text), where);
  } catch (const Json::parse_error& error) {
    return Error::invalid("{}: expected JSON, found something else at byte {} of {}", where, error.byte,
                          text.size());
  } catch (const Json::exception&) {
    return Error::invalid("{}: expected numbers that a double can hold, found a larger one", where);
  }
}

Result<void> write_result(const std::string& path, const BenchResult& result) {
  std::string text;
  print(to_json(result), "", text);
  text += '\n';
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  return write_file_atomically(path, std::span(&part, 1));
}

}  // namespace fathom::measure
