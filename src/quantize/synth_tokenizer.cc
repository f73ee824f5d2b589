#include "quantize/synth_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "text/vocabulary.h"

namespace fathom {
namespace {

enum { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };
constexpr int kReleaseSize = 129280, kReleaseRegular = 128000;
constexpr int kFirstRegular = 3;
constexpr int kLetters = 26;

struct Added {
  int id;  // in the release's vocabulary
  std::string_view text;
  bool is_special;
};
// docs/model/tokenizer.md
constexpr Added kAdded[] = {
    {128799, "<｜System｜>", false},
    {128800, "<｜fim▁hole｜>", false},
    {128801, "<｜fim▁begin｜>", false},
    {128802, "<｜fim▁end｜>", false},
    {128803, "<｜User｜>", false},
    {128804, "<｜Assistant｜>", false},
    {128805, "<|EOT|>", true},
    {128806, "<｜tool▁calls▁begin｜>", false},
    {128807, "<｜tool▁calls▁end｜>", false},
    {128808, "<｜tool▁call▁begin｜>", false},
    {128809, "<｜tool▁call▁end｜>", false},
    {128810, "<｜tool▁outputs▁begin｜>", false},
    {128811, "<｜tool▁outputs▁end｜>", false},
    {128812, "<｜tool▁output▁begin｜>", false},
    {128813, "<｜tool▁output▁end｜>", false},
    {128814, "<｜tool▁sep｜>", false},
    {128815, "<｜begin▁of▁repo▁name｜>", false},
    {128816, "<｜end▁of▁repo▁name｜>", false},
    {128817, "<｜begin▁of▁file▁name｜>", false},
    {128818, "<｜end▁of▁file▁name｜>", false},
    {128819, "<｜begin▁of▁file｜>", false},
    {128820, "<｜end▁of▁file｜>", false},
    {128821, "<think>", false},
    {128822, "</think>", false},
    {128823, "<｜place▁holder▁for▁copy｜>", true},
    {128824, "<｜place▁holder▁for▁pointer▁replace｜>", true},
    {128825, "｜DSML｜", false},
    {128826, "<｜begin▁sys｜>", false},
    {128827, "<｜end▁sys｜>", false},
    {128828, "<｜latest_reminder｜>", false},
    {128829, "<｜action｜>", false},
    {128830, "<｜query｜>", false},
    {128831, "<｜authority｜>", false},
    {128832, "<｜domain｜>", false},
    {128833, "<｜task｜>", false},
    {128834, "<｜political｜>", false},
    {128835, "<｜entity｜>", false},
    {128836, "<｜title｜>", false},
    {128837, "<｜safety｜>", false},
    {128838, "<｜answer｜>", false},
    {128839, "<｜search｜>", false},
    {128840, "<dsml:", false},
    {128841, "</dsml:", false},
    {128842, "<｜search▁begin｜>", false},
    {128843, "<｜search▁end｜>", false},
    {128844, "<｜extracted_url｜>", false},
    {128845, "<｜read_url｜>", false},
    {128846, "<｜end_of_query｜>", false},
    {129262, "<｜rl_image_pad｜>", true},
    {129263, "<｜rl_image_start｜>", true},
    {129264, "<｜deepseek_image｜>", false},
    {129271, "<｜/polygon｜>", false},
    {129272, "<｜polygon｜>", false},
    {129273, "<｜/point｜>", false},
    {129274, "<｜point｜>", false},
    {129275, "<｜/box｜>", false},
    {129276, "<｜box｜>", false},
    {129277, "<｜/ref｜>", false},
    {129278, "<｜ref｜>", false},
};
constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>", kEnd = "<｜end▁of▁sentence｜>",
                           kPad = "<｜▁pad▁｜>", kImage = "<｜deepseek_image｜>";

// Place holders of the release, numbered.
struct Numbered {
  int first_id;
  int count;
  std::string_view prefix;
  int number;
  int digits;
  std::string_view suffix;
};
constexpr Numbered kNumbered[] = {{128000, 799, "<｜place▁holder▁no▁", 0, 1, "｜>"},
                                  {128847, 415, "<|place_holder_mm_span_", 21, 4, "|>"},
                                  {129265, 6, "<|place_holder_mm_span_", 436, 4, "|>"},
                                  {129279, 1, "<|place_holder_mm_span_", 442, 4, "|>"}};

// Word `number` of `length` letters: aaa, aab, ...
std::string word(int64_t number, int length) {
  std::string text(static_cast<size_t>(length), 'a');
  for (int place = length; place-- > 0; number /= kLetters)
    text[static_cast<size_t>(place)] = static_cast<char>('a' + number % kLetters);
  return text;
}

class Builder {
 public:
  explicit Builder(int vocab_size) {
    vocabulary.tokens.resize(static_cast<size_t>(vocab_size));
    vocabulary.types.resize(static_cast<size_t>(vocab_size), kUnused);
  }

  void add(int id, std::string text, int type) {
    vocabulary.tokens[static_cast<size_t>(id)] = std::move(text);
    vocabulary.types[static_cast<size_t>(id)] = type;
  }

  // Fills ids [kFirstRegular, end) with bytes and what merges make of them. False if words run out.
  bool add_regular(int end) {
    end_ = end;
    for (int byte = 0; byte < 256; ++byte) {
      const char one = static_cast<char>(byte);
      add(next_++, spell_bytes({&one, 1}), kNormal);
    }
    const std::string space = spell_bytes(" ");
    int64_t words = kLetters;
    for (int length = 1; length <= 4; ++length, words *= kLetters) {
      for (int64_t number = 0; number < words && length > 1; ++number) {
        const std::string text = word(number, length);
        if (!merge(text.substr(0, text.size() - 1), text.substr(text.size() - 1))) return true;
      }
      for (int64_t number = 0; number < words; ++number)
        if (!merge(space, word(number, length))) return true;
    }
    return next_ == end_;
  }

  VocabularyData vocabulary;

 private:
  bool merge(const std::string& left, const std::string& right) {
    if (next_ == end_) return false;
    vocabulary.merges.push_back(left + " " + right);
    add(next_++, left + right, kNormal);
    return true;
  }
  int next_ = kFirstRegular;
  int end_ = 0;
};

}  // namespace

Result<VocabularyData> make_vocabulary(ModelConfig& config) {
  const bool is_release = config.vocab_size == kReleaseSize;
  const int regular_end =
      is_release ? kReleaseRegular : config.vocab_size - static_cast<int>(std::size(kAdded));
  if (regular_end < kFirstRegular + 256)
    return Error::invalid("vocab_size: expected at least {} for a vocabulary, found {}",
                          kFirstRegular + 256 + std::size(kAdded), config.vocab_size);
  Builder builder(config.vocab_size);
  builder.add(0, std::string(kBegin), kControl);
  builder.add(1, std::string(kEnd), kControl);
  builder.add(2, std::string(kPad), kControl);
  if (!builder.add_regular(regular_end))
    return Error::unsupported("vocab_size: {} is more than a made-up vocabulary has", config.vocab_size);
  int next = regular_end;
  for (const Added& added : kAdded) {
    const int id = is_release ? added.id : next++;
    builder.add(id, std::string(added.text), added.is_special ? kControl : kUserDefined);
    if (added.text == kImage && config.image_token_id >= 0) config.image_token_id = id;
  }
  for (const Numbered& range : kNumbered) {
    for (int k = 0; k < range.count && is_release; ++k)
      builder.add(range.first_id + k,
                  fmt::format("{}{:0{}}{}", range.prefix, range.number + k, range.digits, range.suffix),
                  kControl);
  }
  config.bos_token_id = 0;
  config.eos_token_id = 1;
  config.pad_token_id = 2;
  if (!config.engram.layer_ids.empty()) {
    FATHOM_ASSIGN(const std::vector<int32_t> map, engram_token_map(builder.vocabulary, "made-up vocabulary"));
    config.engram.compressed_vocab_size = 1 + *std::max_element(map.begin(), map.end());
    config.engram.pad_token_id = 2;
  }
  return std::move(builder.vocabulary);
}

}  // namespace fathom
