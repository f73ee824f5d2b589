#include "text/chat_value.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <vector>

#include "base/json_depth.h"

namespace fathom {
namespace {

using Json = nlohmann::ordered_json;

/// Builds the value; unlike the library's own builder it keeps long integers and limits depth and width.
class ValueBuilder : public nlohmann::json_sax<Json> {
 public:
  Json root;
  std::string failure;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(Json::binary(std::move(value))); }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Json::binary({digits.begin(), digits.end()}));
  }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(string_t& name) override {
    if (containers_.back()->size() >= kJsonMembersMax) {
      failure = fmt::format("an object of more than {} members", kJsonMembersMax);
      return false;
    }
    slot_ = &(*containers_.back())[name];
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    failure = error.what();
    if (size_t end = failure.find("] "); failure.starts_with('[') && end != std::string::npos)
      failure.erase(0, end + 2);
    return false;
  }

 private:
  Json* place(Json value) {
    if (containers_.empty()) return &(root = std::move(value));
    if (containers_.back()->is_array()) {
      containers_.back()->push_back(std::move(value));
      return &containers_.back()->back();
    }
    return &(*slot_ = std::move(value));
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (containers_.size() >= kJsonDepthMax) {
      failure = fmt::format("nested deeper than {} levels", kJsonDepthMax);
      return false;
    }
    containers_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    containers_.pop_back();
    return true;
  }

  // Pointers stay valid: only the innermost container grows while it is on the stack.
  std::vector<Json*> containers_;
  Json* slot_ = nullptr;
};

void write_value(const Json& value, std::string& out);

void write_float(double value, std::string& out) {
  // fmt and Python agree on shortest digits and on where exponents begin; only "1" is "1.0" in Python.
  const std::string text = fmt::format("{}", value);
  out += text;
  if (text.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
}

void write_string(std::string_view text, std::string& out) {
  out += '"';
  append_json_escaped(text, out);
  out += '"';
}

void write_object(const Json& object, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : object.items()) {
    if (!first) out += ", ";
    first = false;
    write_string(key, out);
    out += ": ";
    write_value(value, out);
  }
  out += '}';
}

void write_value(const Json& value, std::string& out) {
  switch (value.type()) {
    case Json::value_t::object: return write_object(value, out);
    case Json::value_t::array: {
      out += '[';
      for (size_t element = 0; element < value.size(); ++element) {
        if (element > 0) out += ", ";
        write_value(value[element], out);
      }
      out += ']';
      return;
    }
    case Json::value_t::string: return write_string(value.get_ref<const std::string&>(), out);
    case Json::value_t::number_float: return write_float(value.get<double>(), out);
    case Json::value_t::binary: {
      const auto& digits = value.get_binary();
      out.append(digits.begin(), digits.end());
      return;
    }
    default: out += value.dump();  // null, booleans and integers are written alike by both
  }
}

}  // namespace

Result<Json> parse_json_value(std::string_view text, std::string_view what) {
  ValueBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return Error::invalid("{}: expected JSON, found {}", what, builder.failure);
  return std::move(builder.root);
}

std::string write_python_json(const Json& value) {
  std::string out;
  write_value(value, out);
  return out;
}

void append_json_escaped(std::string_view text, std::string& out) {
  for (char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
}

}  // namespace fathom
