#include "measure/judging.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <span>

#include "base/file.h"
#include "measure/embedded_files.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr size_t kEndCharacters = 200;  // more than a judge has to copy
constexpr int64_t kMany = int64_t{1} << 53;

struct PackedText {
  KeyText key;
  std::string bytes;
};

/// What all folders hold together.
struct Collection {
  std::vector<PackedText> texts;
  std::vector<WritingBrief> briefs;
  JudgingPackage package;
};

std::string end_of(std::string_view text) {
  std::u32string solid;
  for (const char32_t c : characters_of(text))
    if (!is_white_space(c)) solid += c;
  return utf8_of(std::u32string_view(solid).substr(solid.size() - std::min(solid.size(), kEndCharacters)));
}

/// Words that would tell who wrote a text.
std::vector<std::string> telling_words(const JudgedFolder& judged, const WritingRecord& record) {
  std::vector<std::string> words = {judged.engine};
  if (!record.target) return words;
  words.push_back(record.target->model);
  const std::string& engine = record.target->engine;
  words.push_back(engine.substr(0, engine.find(' ')));
  std::erase_if(words, [](const std::string& word) { return word.size() < 4; });
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

Result<void> add_brief(const WritingBrief& brief, const std::string& folder, Collection& collection) {
  for (const WritingBrief& known : collection.briefs) {
    if (known.name != brief.name) continue;
    if (to_json(known) == to_json(brief)) return {};
    return Error::invalid("{}: expected the brief {} of the other folders, found another of this name", folder,
                          brief.name);
  }
  collection.briefs.push_back(brief);
  return {};
}

Result<void> collect(const JudgedFolder& judged, Collection& collection) {
  FATHOM_ASSIGN(const WritingRecord record, read_record(judged.folder));
  const std::vector<std::string> words = telling_words(judged, record);
  for (const WritingBrief& brief : record.settings.briefs) FATHOM_TRY(add_brief(brief, judged.folder, collection));
  for (const WrittenText& text : record.texts) {
    const std::string title = fmt::format("{}: {} {}", judged.engine, text.brief, text.seed);
    if (text.status != TextStatus::kDone) {
      collection.package.left_out.push_back(title +
                                            (text.status == TextStatus::kFailed ? ", failed" : ", not run"));
      continue;
    }
    FATHOM_ASSIGN(std::string bytes, read_written_text(judged.folder, text));
    const std::string searched = folded(bytes);
    for (const std::string& word : words)
      if (occurs_in(searched, word))
        collection.package.warnings.push_back(fmt::format("{}: the text says \"{}\"", title, word));
    PackedText packed;
    packed.key = {.engine = judged.engine,
                  .brief = text.brief,
                  .seed = text.seed,
                  .sha256 = text.sha256,
                  .end = end_of(bytes),
                  .length = text.examination.length,
                  .facts = static_cast<int64_t>(text.examination.facts.size()),
                  .facts_kept = text.examination.facts_kept(),
                  .is_within_goal = text.examination.is_within_goal,
                  .has_loop = text.loop.report.found};
    packed.bytes = std::move(bytes);
    collection.texts.push_back(std::move(packed));
  }
  return {};
}

/// Fisher and Yates; std::shuffle is another one in each library.
void draw_order(uint64_t seed, std::vector<PackedText>& texts) {
  std::mt19937_64 random(seed);
  for (size_t left = texts.size(); left > 1; --left) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % left;
    uint64_t number = random();
    while (number >= limit) number = random();
    std::swap(texts[left - 1], texts[number % left]);
  }
  for (size_t index = 0; index < texts.size(); ++index)
    texts[index].key.name = fmt::format("text_{:02}", index + 1);
}

OrderedJson answer_sheet(const Collection& collection) {
  OrderedJson texts = OrderedJson::array();
  for (const PackedText& text : collection.texts) {
    OrderedJson entry = {{"text", text.key.name}, {"brief", text.key.brief}};
    for (const char* item : kJudgingItems) entry[item] = nullptr;
    entry[fmt::format("last_{}_characters", kLastCharacters)] = "";
    entry["comment"] = "";
    texts.push_back(entry);
  }
  return {{"kind", "writing judgement"},
          {"version", 1},
          {"package", collection.package.id},
          {"judge", ""},
          {"texts", texts}};
}

OrderedJson key_to_json(const Collection& collection, const JudgingOptions& options, uint64_t seed) {
  OrderedJson engines = OrderedJson::array(), texts = OrderedJson::array();
  for (const JudgedFolder& judged : options.folders) engines.push_back(judged.engine);
  for (const PackedText& packed : collection.texts) {
    const KeyText& text = packed.key;
    texts.push_back({{"text", text.name},
                     {"engine", text.engine},
                     {"brief", text.brief},
                     {"seed", text.seed},
                     {"sha256", text.sha256},
                     {"end", text.end},
                     {"length", text.length},
                     {"within_goal", text.is_within_goal},
                     {"loop", text.has_loop},
                     {"facts", text.facts},
                     {"facts_kept", text.facts_kept}});
  }
  return {{"kind", "writing key"}, {"version", 1},       {"package", collection.package.id},
          {"seed", seed},          {"engines", engines}, {"left_out", collection.package.left_out},
          {"texts", texts}};
}

Result<void> check_options(const JudgingOptions& options) {
  if (options.folders.empty()) return Error::invalid("expected at least one folder of texts, found none");
  std::set<std::string> engines;
  for (const JudgedFolder& judged : options.folders)
    if (!engines.insert(judged.engine).second)
      return Error::invalid("{}: expected another name for each folder, found \"{}\" again", judged.folder,
                            judged.engine);
  std::error_code error;
  if (fs::exists(options.package, error) && !fs::is_empty(options.package, error))
    return Error::invalid("{}: expected no such folder or an empty one, found one with files", options.package);
  if (fs::exists(options.key, error))
    return Error::invalid("{}: expected no such file: the key of another package may be in it", options.key);
  const fs::path package = fs::weakly_canonical(fs::absolute(options.package), error);
  const fs::path key = fs::weakly_canonical(fs::absolute(options.key), error);
  const auto [end, rest] = std::mismatch(package.begin(), package.end(), key.begin(), key.end());
  if (end == package.end())
    return Error::invalid("{}: expected a file outside of the package, found one in {}", options.key,
                          options.package);
  return {};
}

Result<void> write_package(const Collection& collection, const std::string& folder) {
  for (const PackedText& text : collection.texts)
    FATHOM_TRY(write_text_file(fmt::format("{}/{}.txt", folder, text.key.name), text.bytes));
  for (const WritingBrief& brief : collection.briefs)
    FATHOM_TRY(write_text_file(fmt::format("{}/brief_{}.txt", folder, brief.name), brief.text + "\n"));
  FATHOM_TRY(write_text_file(folder + "/instructions.md", writing_judging().front().bytes));
  return write_json_file(folder + "/answer_sheet.json", answer_sheet(collection));
}

}  // namespace

Result<JudgingPackage> make_judging_package(const JudgingOptions& options) {
  FATHOM_TRY(check_options(options));
  Collection collection;
  for (const JudgedFolder& judged : options.folders) FATHOM_TRY(collect(judged, collection));
  if (collection.texts.empty()) return Error::invalid("expected finished texts in the folders, found none");
  std::random_device device;
  const uint64_t seed = options.seed.value_or(uint64_t{device()} << 32 | device());
  draw_order(seed, collection.texts);
  // From what judges see anyway: a hash of the seed could be searched for.
  std::string seen;
  for (const PackedText& text : collection.texts) seen += text.key.sha256;
  collection.package.id = sha256_hex(seen).substr(0, 16);
  collection.package.texts = static_cast<int64_t>(collection.texts.size());

  std::error_code error;
  fs::create_directories(options.package, error);
  if (error) return Error::io("{}: cannot be made: {}", options.package, error.message());
  // The key first, and for nobody else: a package without one is worth nothing.
  FATHOM_TRY(write_json_file(options.key, key_to_json(collection, options, seed), 0600));
  FATHOM_TRY(write_package(collection, options.package));
  return std::move(collection.package);
}

Result<JudgingKey> read_judging_key(const std::string& path) {
  FATHOM_ASSIGN(const Json json, read_json_object(path));
  JsonMembers members(json, path);
  const std::string kind = members.text("kind");
  if (kind != "writing key") members.refuse("kind", "\"writing key\"", kind);
  members.whole("version", 1, 1);
  JudgingKey key{.id = members.text("package"),
                 .seed = members.seed("seed"),
                 .engines = members.texts("engines"),
                 .left_out = members.texts("left_out")};
  const Json& texts = members.array("texts");
  FATHOM_TRY(members.result());
  std::set<std::string> names;
  for (size_t number = 0; number < texts.size(); ++number) {
    JsonMembers entry(texts[number], members.place("texts", number));
    KeyText text{.name = entry.text("text"),
                 .engine = entry.text("engine"),
                 .brief = entry.text("brief"),
                 .seed = entry.seed("seed"),
                 .sha256 = entry.text("sha256"),
                 .end = entry.text("end"),
                 .length = entry.whole("length", 0, kMany),
                 .facts = entry.whole("facts", 0, kMany),
                 .facts_kept = entry.whole("facts_kept", 0, kMany),
                 .is_within_goal = entry.flag("within_goal"),
                 .has_loop = entry.flag("loop")};
    if (!names.insert(text.name).second) entry.refuse("text", "each text once", text.name);
    if (std::find(key.engines.begin(), key.engines.end(), text.engine) == key.engines.end())
      entry.refuse("engine", "one of \"engines\"", text.engine);
    FATHOM_TRY(entry.result());
    key.texts.push_back(std::move(text));
  }
  return key;
}

}  // namespace fathom::measure
