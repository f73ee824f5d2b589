#include "text/vocabulary.h"

#include <array>

#include "text/utf8.h"

namespace fathom {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr int kOtherBytes = 68;

struct ByteAlphabet {
  std::array<char32_t, 256> to_unicode{};
  std::array<int16_t, 256 + kOtherBytes> to_byte{};  // -1: no byte's character

  constexpr ByteAlphabet() {
    for (auto& byte : to_byte) byte = -1;
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const int code = stands_for_itself(byte) ? byte : 256 + others++;
      to_unicode[byte] = static_cast<char32_t>(code);
      to_byte[code] = static_cast<int16_t>(byte);
    }
  }
};
constexpr ByteAlphabet kAlphabet;
static_assert(kAlphabet.to_unicode[' '] == 0x120 && kAlphabet.to_unicode['\n'] == 0x10A);

}  // namespace

RawVocabulary::Text RawVocabulary::store(std::string_view string) {
  const Text stored{static_cast<uint32_t>(text.size()), static_cast<uint32_t>(string.size())};
  text.append(string);
  return stored;
}

std::optional<RawVocabulary::Merge> store_merge(std::string_view pair, RawVocabulary& vocabulary) {
  const size_t space = pair.find(' ');
  if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos) return {};
  const auto left = vocabulary.store(pair.substr(0, space));
  return RawVocabulary::Merge{left, vocabulary.store(pair.substr(space + 1))};
}

char32_t byte_to_unicode(uint8_t byte) { return kAlphabet.to_unicode[byte]; }

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) append_utf8(byte_to_unicode(static_cast<uint8_t>(byte)), spelling);
  return spelling;
}

bool append_spelled(std::string_view spelling, std::string& out) {
  const size_t before = out.size();
  for (size_t position = 0; position < spelling.size();) {
    const Utf8Char c = decode_utf8(spelling, position);
    if (c.code >= kAlphabet.to_byte.size() || kAlphabet.to_byte[c.code] < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(kAlphabet.to_byte[c.code]);
    position += c.length_bytes;
  }
  return true;
}

}  // namespace fathom
