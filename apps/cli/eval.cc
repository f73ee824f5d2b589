// fathom eval: perplexity, and how far a pack's predictions are from another's.
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "failure.h"
#include "handles.h"
#include "model_options.h"
#include "output.h"
#include "sizes.h"
#include "suggestion.h"
#include "text_source.h"

namespace fathom::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ModelOptions model;
  TextSource text;
  std::string against, reference, save_reference, json_file;
  int64_t stride_tokens = 0;
};

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const fathom_estimate& estimate) {
  return {{"value", number(estimate.value)},
          {"error", number(estimate.error)},
          {"window_error", number(estimate.window_error)}};
}

std::string hex(const uint8_t (&bytes)[32]) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

Json to_json(const Options& options, const fathom_engine_info& info, const fathom_quality& quality) {
  Json json = {{"model", printable(info.model_path)},
               {"dialect", info.dialect},
               {"numerics", info.numerics},
               {"fingerprint", hex(info.fingerprint)},
               {"file_bytes", info.file_bytes},
               {"weight_bytes", info.weight_bytes},
               {"text", printable(options.text.name())},
               {"tokens", quality.tokens},
               {"windows", quality.windows},
               {"nll", to_json(quality.nll)},
               {"perplexity", to_json(quality.perplexity)}};
  if (!quality.has_reference) return json;
  json["reference"] = printable(options.against.empty() ? options.reference : options.against);
  json["reference_fingerprint"] = hex(quality.reference_fingerprint);
  json["reference_nll"] = to_json(quality.reference_nll);
  json["reference_perplexity"] = to_json(quality.reference_perplexity);
  json["nll_difference"] = to_json(quality.nll_difference);
  json["kl_divergence"] = to_json(quality.divergence);
  json["kl_median"] = number(quality.divergence_median);
  json["kl_p99"] = number(quality.divergence_p99);
  json["kl_max"] = number(quality.divergence_max);
  json["same_top"] = to_json(quality.same_top);
  json["probability_difference"] = to_json(quality.probability_difference);
  return json;
}

std::string row(const char* name, const fathom_estimate& estimate, double scale = 1, const char* unit = "") {
  const auto spread = [&](double value) {
    return std::isfinite(value) ? fmt::format("± {:.5f}", scale * value) : std::string("-");
  };
  return fmt::format("{:<28} {:>12.5f}{:<2} {:<12} {}\n", name, scale * estimate.value, unit,
                     spread(estimate.error), spread(estimate.window_error));
}

std::string to_text(const Options& options, const fathom_engine_info& info, const fathom_quality& quality) {
  std::string text =
      fmt::format("model      {}, {}, {}\n", printable(info.model_path), info.dialect, info.numerics);
  if (quality.has_reference)
    text += fmt::format("reference  {}\n",
                        printable(options.against.empty() ? options.reference : options.against));
  text += fmt::format("text       {}: {} tokens predicted in {} windows\n\n", printable(options.text.name()),
                      quality.tokens, quality.windows);
  text += fmt::format("{:<28} {:>14} {:<12} {}\n", "", "", "over tokens", "over windows");
  text += row("nats a token", quality.nll) + row("perplexity", quality.perplexity);
  if (!quality.has_reference) return text;
  text += row("reference's nats a token", quality.reference_nll);
  text += row("reference's perplexity", quality.reference_perplexity);
  text += row("difference in nats", quality.nll_difference);
  text += row("KL divergence, mean", quality.divergence);
  text += fmt::format("{:<28} {:>12.5f}\n", "KL divergence, median", quality.divergence_median);
  text += fmt::format("{:<28} {:>12.5f}\n", "KL divergence, 99%", quality.divergence_p99);
  text += fmt::format("{:<28} {:>12.5f}\n", "KL divergence, largest", quality.divergence_max);
  text += row("same most likely token", quality.same_top, 100, " %");
  text += row("token's probability, change", quality.probability_difference, 100, " %");
  return text;
}

void write_json(const std::string& path, const Json& json) {
  const std::string text = json.dump(2) + "\n";
  if (path == "-") {
    Output(STDOUT_FILENO).write(text);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail("{}: cannot be written", path);
}

// Ids mean nothing to a model with another vocabulary.
void require_same_ids(const Engine& reference, const Options& options, const std::vector<int32_t>& ids) {
  const fathom_tokenizer* tokenizer = fathom_engine_tokenizer(reference.get());
  if (tokenizer == nullptr || options.text.text_file.empty() || options.text.text_file == "-") return;
  if (options.text.read(tokenizer) != ids)
    fail("{}: its tokenizer cuts the text differently: the predictions cannot be compared", options.against);
}

int eval(const Options& options) {
  if (!options.against.empty()) require_exists(options.against);
  Progress progress;
  const Engine engine = open_engine(options.model, progress);
  const std::vector<int32_t> ids = options.text.read(fathom_engine_tokenizer(engine.get()));
  Engine reference;
  if (!options.against.empty()) {
    ModelOptions other = options.model;
    other.model = options.against;
    reference = open_engine(other, progress);
    require_same_ids(reference, options, ids);
  }
  fathom_quality_options quality_options;
  fathom_quality_options_init(&quality_options);
  quality_options.reference = reference.get();
  if (!options.reference.empty()) quality_options.reference_path = options.reference.c_str();
  if (!options.save_reference.empty()) quality_options.save_path = options.save_reference.c_str();
  quality_options.context_tokens = options.model.context_tokens;
  quality_options.stride_tokens = options.stride_tokens;
  quality_options.progress = Progress::report;
  quality_options.progress_user = &progress;
  fathom_quality quality{};
  const fathom_status status =
      fathom_measure_quality(engine.get(), ids.data(), ids.size(), &quality_options, &quality);
  progress.finish();
  if (status == FATHOM_CANCELLED) return kExitInterrupted;
  require(status);

  fathom_engine_info info{};
  require(fathom_engine_get_info(engine.get(), &info));
  if (options.json_file != "-" && !Output(STDOUT_FILENO).write(to_text(options, info, quality)))
    return kExitOutputClosed;
  if (!options.json_file.empty()) write_json(options.json_file, to_json(options, info, quality));
  return 0;
}

}  // namespace

Command add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Measure how well a pack predicts a text");
  auto options = std::make_shared<Options>();
  options->text.add(*command);
  options->model.add_all(*command);
  command->get_option("--ctx")->description(
      "Tokens of a window (default: 2048, or the model's if that is less)");
  add_amount(*command, "--stride", options->stride_tokens, parse_tokens,
             "Tokens from window to window (default: each begins where the last one ends)");
  CLI::Option* against =
      command->add_option("--against", options->against, "Pack whose predictions are the reference")
          ->type_name("PATH");
  command->add_option("--reference", options->reference, "File of predictions that --save-reference wrote")
      ->type_name("FILE")
      ->excludes(against);
  command->add_option("--save-reference", options->save_reference, "Keep this pack's predictions")
      ->type_name("FILE");
  command
      ->add_option("--json", options->json_file,
                   "Write the numbers there; - is standard output, without the table")
      ->type_name("FILE");
  command->footer(
      "Errors are standard errors: as if tokens were independent, and from drawing whole windows.\n"
      "docs/eval.md says how everything is computed.\n\n"
      "Examples:\n"
      "  fathom eval -m small.gguf story.txt --against models/mini\n"
      "  fathom eval -m large.gguf book.txt --limit 64K --save-reference book.ref\n"
      "  fathom eval -m small.gguf book.txt --limit 64K --reference book.ref --json small.json\n");
  return {command, [options] { return eval(*options); }};
}

}  // namespace fathom::cli
