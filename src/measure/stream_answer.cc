// Events of a streamed answer become a Generation.
#include <algorithm>
#include <cstdint>

#include "measure/http_target.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

/// Null if there is nothing.
const Json* at(const Json& json, const std::optional<JsonPointer>& pointer) {
  if (!pointer || !json.contains(*pointer)) return nullptr;
  const Json& value = json.at(*pointer);
  return value.is_null() ? nullptr : &value;
}

std::optional<int64_t> integer_at(const Json& json, const std::optional<JsonPointer>& pointer) {
  const Json* value = at(json, pointer);
  if (value == nullptr || !value->is_number_integer()) return {};
  return value->get<int64_t>();
}

std::optional<std::vector<int32_t>> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  if (!json.is_array()) return {};
  for (const Json& item : json) {
    if (!item.is_number_integer()) return {};
    const int64_t id = item.get<int64_t>();
    if (id < 0 || id > INT32_MAX) return {};
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::string shown(const Json& json) {
  return json.is_string() ? shown_text(json.get_ref<const std::string&>()) : shown_json(json);
}

class AnswerReader {
 public:
  AnswerReader(const StreamShape& shape, const std::vector<int32_t>* sent_ids)
      : shape_(shape), sent_ids_(sent_ids) {}

  void read(const ServerEvent& event, size_t number) {
    const Json json = parse_shallow(event.data);
    if (json.is_discarded()) return fail(fmt::format("not JSON: event {} is {}", number, shown_text(event.data)));
    if (const Json* error = at(json, shape_.error)) return fail("the server says: " + shown(*error));
    if (event.name == "error" || at(json, JsonPointer("/error")) != nullptr)
      return fail("the server says: " + shown(json));
    read_ids(json, event.arrived_ns, number);
    read_text(json, event.arrived_ns);
    read_claims(json, event.arrived_ns);
    if (const Json* end = at(json, shape_.end)) has_end_ = has_end_ || !end->is_boolean() || end->get<bool>();
  }

  Generation finish(const StreamEnd& end, bool gives_ids) {
    generation_.sent_ns = end.sent_ns;
    generation_.ended_ns = end.ended_ns;
    if (generation_.ids.empty()) generation_.token_ns = std::move(text_ns_);
    // A server that fails often says why before it cuts the stream.
    if (generation_.error.empty()) generation_.error = end.error;
    if (!(shape_.ends_with_done ? end.is_done : has_end_))
      fail(fmt::format("stream cut: it closed without {}", shape_.ends_with_done ? "[DONE]" : "its last event"));
    check_prompt();
    check_output(gives_ids);
    // Told after the first token it says nothing about when that one could have come.
    if (generation_.prefill_end_ns && !generation_.token_ns.empty() &&
        *generation_.prefill_end_ns > generation_.token_ns.front())
      generation_.prefill_end_ns.reset();
    return std::move(generation_);
  }

 private:
  /// The first thing that goes wrong is what is told.
  void fail(std::string what) {
    if (generation_.error.empty()) generation_.error = std::move(what);
  }

  void read_ids(const Json& json, int64_t arrived_ns, size_t number) {
    if (const Json* list = at(json, shape_.prompt_ids)) {
      const auto ids = ids_of(*list);
      if (!ids) return fail(fmt::format("wrong ids: the prompt's in event {} are {}", number, shown(*list)));
      if (sent_ids_ != nullptr && *ids != *sent_ids_) {
        const auto [sent, echoed] = std::mismatch(sent_ids_->begin(), sent_ids_->end(), ids->begin(), ids->end());
        const auto name = [](auto it, auto last) {
          return it == last ? std::string("nothing") : std::to_string(*it);
        };
        fail(fmt::format("wrong ids: at position {} of the prompt {} was sent and {} arrived",
                         sent - sent_ids_->begin(), name(sent, sent_ids_->end()), name(echoed, ids->end())));
      }
    }
    const Json* list = at(json, shape_.ids);
    if (list == nullptr) return;
    auto ids = ids_of(*list);
    if (!ids) return fail(fmt::format("wrong ids: event {} has {}", number, shown(*list)));
    size_t known = 0;
    if (shape_.ids_accumulate) {
      known = generation_.ids.size();
      if (ids->size() < known || !std::equal(generation_.ids.begin(), generation_.ids.end(), ids->begin()))
        return fail(fmt::format("wrong ids: event {} does not go on from the {} before it", number, known));
    }
    for (size_t index = known; index < ids->size(); ++index) {
      generation_.ids.push_back((*ids)[index]);
      generation_.token_ns.push_back(arrived_ns);
    }
  }

  void read_text(const Json& json, int64_t arrived_ns) {
    std::string text;
    for (const JsonPointer& pointer : shape_.text)
      if (const Json* part = at(json, pointer); part != nullptr && part->is_string())
        text += part->get_ref<const std::string&>();
    if (shape_.text_accumulates) {
      if (text.size() <= generation_.text.size()) return;
      generation_.text = std::move(text);
    } else {
      if (text.empty()) return;
      generation_.text += text;
    }
    text_ns_.push_back(arrived_ns);
  }

  void read_claims(const Json& json, int64_t arrived_ns) {
    const auto keep = [&](std::optional<int64_t>& claim, const std::optional<JsonPointer>& pointer) {
      if (const auto number = integer_at(json, pointer)) claim = number;
    };
    keep(generation_.claimed_prompt_tokens, shape_.prompt_tokens);
    keep(generation_.claimed_cached_tokens, shape_.cached_tokens);
    keep(generation_.claimed_output_tokens, shape_.output_tokens);
    const auto keep_time = [&](std::optional<double>& claim, const auto& pointer, double unit_s) {
      if (const Json* value = at(json, pointer); value != nullptr && value->is_number())
        claim = value->get<double>() * unit_s;
    };
    keep_time(generation_.claimed_prefill_s, shape_.prefill, shape_.prefill_unit_s);
    keep_time(generation_.claimed_decode_s, shape_.decode, shape_.decode_unit_s);
    if (const Json* reason = at(json, shape_.finish_reason); reason != nullptr && reason->is_string())
      generation_.finish_reason = reason->get<std::string>();
    const auto done = integer_at(json, shape_.prefill_done), total = integer_at(json, shape_.prefill_total);
    if (done && done == total && !generation_.prefill_end_ns) generation_.prefill_end_ns = arrived_ns;
  }

  void check_prompt() {
    if (sent_ids_ == nullptr || !generation_.claimed_prompt_tokens) return;
    const auto sent = static_cast<int64_t>(sent_ids_->size());
    if (*generation_.claimed_prompt_tokens != sent)
      fail(fmt::format("wrong ids: {} were sent and the server counts {}", sent,
                       *generation_.claimed_prompt_tokens));
  }

  void check_output(bool gives_ids) {
    const int64_t came = static_cast<int64_t>(generation_.ids.size());
    const int64_t claimed = generation_.claimed_output_tokens.value_or(came);
    if (!gives_ids || !shape_.ids || came == claimed) return;
    // What ended an answer of its own accord is counted by some servers and sent by none or all of them.
    const bool ended_by_limit = generation_.finish_reason == "length" || generation_.finish_reason == "limit";
    if (!ended_by_limit && came + 1 == claimed) return;
    fail(fmt::format("wrong ids: {} came and the server counts {}", came, claimed));
  }

  const StreamShape& shape_;
  const std::vector<int32_t>* sent_ids_;
  Generation generation_;
  std::vector<int64_t> text_ns_;
  bool has_end_ = false;
};

}  // namespace

Generation read_answer(const StreamShape& shape, bool gives_ids, const std::vector<ServerEvent>& events,
                       const StreamEnd& end, const std::vector<int32_t>* sent_ids) {
  AnswerReader reader(shape, sent_ids);
  for (size_t number = 0; number < events.size(); ++number) reader.read(events[number], number + 1);
  return reader.finish(end, gives_ids);
}

}  // namespace fathom::measure
