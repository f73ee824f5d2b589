// A target in the test's own process that answers what the test wants.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/writing.h"

namespace fathom::measure {

/// What all targets of a test share.
struct WritingScript {
  TargetInfo info{.engine = "scripted 1", .driver = "test", .model = "tale", .pack_path = "/packs/tale"};
  std::string start_error;  // of every start
  std::function<Generation(const GenerateRequest&)> answer;
  std::vector<GenerateRequest> requests;
  int made = 0, started = 0, stopped = 0, cleared = 0;
};

/// 3 ids, 1 s to the first token, 2 tokens a second after it.
inline Generation whole_answer(std::string text, std::vector<int32_t> ids = {5, 6, 7}) {
  Generation generation{.sent_ns = 1'000'000'000, .ended_ns = 3'500'000'000, .ids = std::move(ids)};
  generation.token_ns = {2'000'000'000, 2'500'000'000, 3'000'000'000};
  generation.text = std::move(text);
  generation.finish_reason = "stop";
  return generation;
}

inline TargetFactory factory_of(WritingScript& script) {
  class Made final : public Target {
   public:
    explicit Made(WritingScript& script) : script_(script) { ++script.made; }
    Result<TargetInfo> start() override {
      ++script_.started;
      if (!script_.start_error.empty()) return Error::state("{}", script_.start_error);
      return script_.info;
    }
    void stop() override { ++script_.stopped; }
    bool clear_state() override { return ++script_.cleared > 0; }
    Generation generate(const GenerateRequest& request) override {
      script_.requests.push_back(request);
      return script_.answer(request);
    }
    Result<std::vector<TokenLogprob>> next_logprobs(const std::vector<int32_t>&, int32_t) override {
      return Error::unsupported("the scripted target has no logprobs");
    }
    ProcessUsage usage() override { return {}; }

   private:
    WritingScript& script_;
  };
  return [&script] { return std::make_unique<Made>(script); };
}

/// A folder that goes away with the test.
class WritingFolder {
 public:
  WritingFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fathom_writing_XXXXXX").string();
    path_ = ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~WritingFolder() { std::filesystem::remove_all(path_); }
  WritingFolder(const WritingFolder&) = delete;
  WritingFolder& operator=(const WritingFolder&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline WritingBrief small_brief(std::string name) {
  return {.name = std::move(name),
          .language = "English",
          .text = "Write about the sea.",
          .length = {LengthUnit::kWords, 3, 5},
          .facts = {{"sea", {"sea"}}, {"boat", {"boat"}}}};
}

}  // namespace fathom::measure
