#include "conversation.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "failure.h"
#include "output.h"

namespace fathom::cli {
namespace {

using Json = nlohmann::ordered_json;

// What the library reads too; deeper ones would overflow the stack when they are written.
constexpr int kDepthMax = 512;

bool is_system(const Json& message) {
  const auto role = message.find("role");
  return role != message.end() && *role == "system";
}

}  // namespace

Conversation::Conversation()
    : root_(std::make_unique<Json>(Json{{"thinking", false}, {"messages", Json::array()}})) {}
Conversation::~Conversation() = default;

bool Conversation::set_thinking(const std::string& level) {
  if (level == "off") {
    (*root_)["thinking"] = false;
    root_->erase("reasoning_effort");
    return true;
  }
  Json effort = level;
  if (level != "low" && level != "high" && level != "max") {
    int number = 0;
    const auto [end, error] = std::from_chars(level.data(), level.data() + level.size(), number);
    if (error != std::errc() || end != level.data() + level.size() || number < 1 || number > 100)
      return false;
    effort = number;
  }
  (*root_)["thinking"] = true;
  (*root_)["reasoning_effort"] = effort;
  return true;
}

std::string Conversation::thinking() const {
  const auto thinking = root_->find("thinking");
  if (thinking != root_->end() && *thinking == false) return "off";
  const auto effort = root_->find("reasoning_effort");
  if (effort == root_->end()) return "high";
  return effort->is_string() ? effort->get<std::string>() : effort->dump();
}

void Conversation::set_system(const std::string& text) {
  Json& messages = (*root_)["messages"];
  if (!messages.empty() && is_system(messages[0])) messages.erase(messages.begin());
  if (!text.empty())
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", printable(text)}});
}

std::string Conversation::system() const {
  const Json& messages = (*root_)["messages"];
  if (messages.empty() || !is_system(messages[0]) || !messages[0].contains("content")) return "";
  const Json& content = messages[0]["content"];
  return content.is_string() ? content.get<std::string>() : content.dump();
}

void Conversation::add_user(const std::string& text) {
  (*root_)["messages"].push_back(Json{{"role", "user"}, {"content", printable(text)}});
}

void Conversation::add_answer(const std::string& message_json) {
  (*root_)["messages"].push_back(Json::parse(message_json));
}

void Conversation::drop_last() { (*root_)["messages"].erase((*root_)["messages"].size() - 1); }

void Conversation::reset() {
  Json& messages = (*root_)["messages"];
  const size_t keep = !messages.empty() && is_system(messages[0]) ? 1 : 0;
  messages.erase(messages.begin() + static_cast<Json::difference_type>(keep), messages.end());
}

size_t Conversation::message_count() const { return (*root_)["messages"].size(); }

std::string Conversation::json() const { return root_->dump(); }
std::string Conversation::file_text() const { return root_->dump(2) + "\n"; }

void Conversation::load(const std::string& text) {
  bool is_too_deep = false;
  const auto limit_depth = [&is_too_deep](int depth, Json::parse_event_t /*event*/, const Json& /*value*/) {
    is_too_deep = is_too_deep || depth > kDepthMax;
    return !is_too_deep;
  };
  Json root = Json::parse(text, limit_depth, false);
  if (is_too_deep) fail("not a conversation: nested deeper than {} levels", kDepthMax);
  if (!root.is_object() || !root.contains("messages") || !root["messages"].is_array())
    fail("not a conversation: expected a JSON object with an array \"messages\"");
  for (const Json& message : root["messages"])
    if (!message.is_object())
      fail("not a conversation: expected objects in \"messages\", found {}", message.dump());
  *root_ = std::move(root);
}

}  // namespace fathom::cli
