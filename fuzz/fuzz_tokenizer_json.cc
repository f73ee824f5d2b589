// Any bytes as a tokenizer.json: refused or loaded, never a crash. What loads must encode and decode any
// text without loss. Start from the small vocabularies: tests/data/golden/*/tokenizer.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/engram_map.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<Tokenizer> loaded = Tokenizer::from_json(bytes, "fuzz");
  if (!loaded.ok()) return 0;
  const Tokenizer& tokenizer = *loaded;
  const std::string_view text = bytes.substr(0, 4096);
  if (tokenizer.decode(tokenizer.encode(text)) != text) std::abort();
  if (tokenizer.decode(tokenizer.encode_with_special(text)) != text) std::abort();
  if (tokenizer.vocab_size() < 4096) build_engram_token_map(tokenizer, tokenizer.vocab_size());
  return 0;
}
