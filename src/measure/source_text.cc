#include "measure/source_text.h"

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/sha256.h"
#include "measure/embedded_files.h"

namespace fathom::measure {
namespace {

std::string stem(std::string_view path) {
  path.remove_prefix(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1);
  const size_t dot = path.rfind('.');
  return std::string(path.substr(0, dot == 0 ? path.npos : dot));
}

bool is_inside_character(std::string_view text, size_t position) {
  return position < text.size() && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80;
}

Result<std::string> read_text(const std::string& name) {
  for (const EmbeddedFile& file : measuring_texts())
    if (stem(file.name) == name) return std::string(file.bytes);
  Result<MappedFile> file = MappedFile::open(name);
  if (!file.ok() && name.find_first_of("./") == name.npos)
    return Error::not_found(
        "source \"{}\": expected novel, code, korean or the path of a text, found no such file", name);
  if (!file.ok()) return std::move(file).error();
  const std::span<const std::byte> bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

std::string_view SourceText::text_between(int64_t from, int64_t to) const {
  const auto position = [&](int64_t tokens) {
    size_t end = tokens == 0 ? 0 : text_ends[static_cast<size_t>(tokens) - 1];
    while (is_inside_character(text, end)) ++end;
    return end;
  };
  const size_t begin = position(from);
  return std::string_view(text).substr(begin, position(to) - begin);
}

std::span<const char* const> source_names() {
  static constexpr const char* kNames[] = {"novel", "code", "korean"};
  return kNames;
}

Result<SourceText> read_source(const std::string& name, const fathom_tokenizer* tokenizer) {
  FATHOM_ASSIGN(std::string text, read_text(name));
  SourceText result;
  result.source.name = stem(name);
  result.source.sha256 = hex_string(sha256(std::as_bytes(std::span(text))));
  const int32_t bos = fathom_token_id(tokenizer, FATHOM_TOKEN_BOS);
  if (bos >= 0) {
    result.ids.push_back(bos);
    result.text_ends.push_back(0);
  }
  int32_t* ids = nullptr;
  size_t count = 0;
  if (fathom_tokenize(tokenizer, text.data(), text.size(), false, &ids, &count) != FATHOM_OK)
    return Error::invalid("source {}: {}", name, fathom_last_error());
  const std::unique_ptr<int32_t, decltype(&fathom_free)> owner(ids, fathom_free);
  size_t end = 0;
  for (const int32_t id : std::span(ids, count)) {
    size_t bytes = 0;
    fathom_token_bytes(tokenizer, id, &bytes);
    end += bytes;
    result.ids.push_back(id);
    result.text_ends.push_back(end);
  }
  if (end != text.size())
    return Error::invalid("source {}: expected tokens of its {} bytes, found some of {}", name, text.size(), end);
  result.source.tokens = static_cast<int64_t>(result.ids.size());
  result.text = std::move(text);
  return result;
}

}  // namespace fathom::measure
