#include "text/utf8.h"

namespace fathom {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Appends the repaired text from `position` on. With `keep_tail`, stops before a truncated character and
// returns where it starts; otherwise returns text.size().
size_t append_repaired(std::string_view text, bool keep_tail, std::string& out) {
  size_t position = 0;
  while (position < text.size()) {
    const Utf8Char c = decode_utf8(text, position);
    if (c.status == Utf8Status::kTruncated && keep_tail) return position;
    if (c.status == Utf8Status::kValid) {
      out.append(text.substr(position, c.length_bytes));
    } else {
      out.append(kReplacement);
    }
    position += c.length_bytes;
  }
  return position;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[position + k]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, Utf8Status::kValid};
  if (lead < 0xC2 || lead > 0xF4) return {0xFFFD, 1, Utf8Status::kInvalid};

  const uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte alone tells overlong forms, surrogates and codes above U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code = lead & (0x7F >> length);
  for (uint8_t k = 1; k < length; ++k) {
    if (position + k >= text.size()) return {0xFFFD, k, Utf8Status::kTruncated};
    const uint8_t next = byte(k);
    if (next < (k == 1 ? low : 0x80) || next > (k == 1 ? high : 0xBF))
      return {0xFFFD, k, Utf8Status::kInvalid};
    code = code << 6 | (next & 0x3F);
  }
  return {code, length, Utf8Status::kValid};
}

bool is_valid_utf8(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const Utf8Char c = decode_utf8(text, position);
    if (c.status != Utf8Status::kValid) return false;
    position += c.length_bytes;
  }
  return true;
}

void append_utf8(char32_t code, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_repaired(text, /*keep_tail=*/false, out);
  return out;
}

std::string Utf8Holder::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  const size_t used_bytes = append_repaired(pending_, /*keep_tail=*/true, out);
  pending_.erase(0, used_bytes);
  return out;
}

std::string Utf8Holder::flush() {
  std::string out;
  append_repaired(pending_, /*keep_tail=*/false, out);
  pending_.clear();
  return out;
}

}  // namespace fathom
