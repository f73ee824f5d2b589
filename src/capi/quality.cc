#include <algorithm>
#include <optional>

#include "capi/handles.h"
#include "quantize/compare_packs.h"
#include "quantize/evaluation.h"
#include "quantize/imatrix_collect.h"

using namespace fathom;
using namespace fathom::capi;

namespace {

constexpr int64_t kDefaultWindowTokens = 2048;

fathom_estimate to_c(const Estimate& estimate) {
  return {.value = estimate.value, .error = estimate.error, .window_error = estimate.window_error};
}

fathom_quality to_c(const Quality& quality) {
  fathom_quality out{};
  out.size = sizeof out;
  out.tokens = quality.tokens;
  out.windows = quality.windows;
  out.has_reference = quality.has_reference;
  out.nll = to_c(quality.nll);
  out.perplexity = to_c(quality.perplexity);
  out.reference_nll = to_c(quality.reference_nll);
  out.reference_perplexity = to_c(quality.reference_perplexity);
  out.nll_difference = to_c(quality.nll_difference);
  out.divergence = to_c(quality.divergence);
  out.divergence_median = quality.divergence_median;
  out.divergence_p99 = quality.divergence_p99;
  out.divergence_max = quality.divergence_max;
  out.same_top = to_c(quality.same_top);
  out.probability_difference = to_c(quality.probability_difference);
  return out;
}

struct SessionRelease {
  void operator()(fathom_session* session) const { fathom_session_free(session); }
};
using OwnedSession = std::unique_ptr<fathom_session, SessionRelease>;

Result<OwnedSession> window_session(fathom_engine& engine, int64_t context_tokens) {
  FATHOM_ASSIGN(std::unique_ptr<fathom_session> session, make_session(engine, context_tokens));
  return OwnedSession(session.release());
}

Result<WindowOptions> window_options(const fathom_engine& engine, int64_t context_tokens,
                                     int64_t stride_tokens) {
  const ModelConfig& config = engine.model->config();
  const int64_t longest = config.max_position_embeddings;
  WindowOptions options{.context_tokens = context_tokens, .stride_tokens = stride_tokens};
  if (context_tokens == 0) options.context_tokens = std::min(kDefaultWindowTokens, longest);
  if (options.context_tokens < 2 || options.context_tokens > longest)
    return Error::invalid("context: expected 2 to {} tokens, which the model was made for, found {}", longest,
                          options.context_tokens);
  if (engine.tokenizer) options.bos_token = config.bos_token_id;
  return options;
}

Result<void> measure(fathom_engine& engine, std::span<const int32_t> ids,
                     const fathom_quality_options& options, fathom_quality* out) {
  const bool has_file = options.reference_path != nullptr && *options.reference_path != '\0';
  if (options.reference == &engine)
    return Error::invalid("reference: expected another engine, found the one that is measured");
  if (options.reference != nullptr && has_file)
    return Error::invalid("reference: expected an engine or a file, found both");
  EvaluationOptions evaluation;
  FATHOM_ASSIGN(evaluation.windows, window_options(engine, options.context_tokens, options.stride_tokens));
  evaluation.save_path = view_or(options.save_path, "");
  evaluation.progress = wrap_progress(options.progress, options.progress_user);

  FATHOM_ASSIGN(const OwnedSession session, window_session(engine, evaluation.windows.context_tokens));
  OwnedSession reference;
  std::array<uint8_t, 32> fingerprint{};
  if (options.reference != nullptr) {
    FATHOM_ASSIGN(reference, window_session(*options.reference, evaluation.windows.context_tokens));
    evaluation.reference = reference->session.get();
    fingerprint = options.reference->model->fingerprint();
  }
  std::optional<ReferenceReader> stored;
  if (has_file) {
    FATHOM_ASSIGN(stored, ReferenceReader::open(options.reference_path));
    evaluation.stored = &*stored;
    fingerprint = stored->header().model;
  }
  FATHOM_ASSIGN(const Quality quality, evaluate_text(*session->session, ids, evaluation));
  fathom_quality result = to_c(quality);
  std::copy(fingerprint.begin(), fingerprint.end(), result.reference_fingerprint);
  write_sized(result, out);
  return {};
}

Result<ImportanceFormat> importance_format(const char* name) {
  const std::string_view format = view_or(name, "gguf");
  if (format == "gguf") return ImportanceFormat::kGguf;
  if (format == "dat") return ImportanceFormat::kDat;
  return Error::invalid("format: expected gguf or dat, found \"{}\"", format);
}

Result<void> run_windows(fathom_engine& engine, std::span<const int32_t> ids,
                         const std::vector<TextWindow>& windows, const WindowOptions& options,
                         const ProgressFn& progress) {
  FATHOM_ASSIGN(const OwnedSession session, window_session(engine, options.context_tokens));
  const auto ignore = [](int64_t, std::span<const float>) -> Result<void> { return {}; };
  int64_t total = 0, done = 0;
  for (const TextWindow& window : windows) total += static_cast<int64_t>(window.end - window.begin);
  for (const TextWindow& window : windows) {
    std::vector<int32_t> tokens;
    if (window.has_bos_before) tokens.push_back(options.bos_token);
    tokens.insert(tokens.end(), ids.begin() + static_cast<ptrdiff_t>(window.begin),
                  ids.begin() + static_cast<ptrdiff_t>(window.end));
    session->session->invalidate();
    const auto tell = [&](const Progress& now) {
      return !progress ||
             progress({.stage = "importance", .unit = "tokens", .done = done + now.done, .total = total});
    };
    FATHOM_TRY(session->session->evaluate(tokens, ignore, tell));
    done += static_cast<int64_t>(window.end - window.begin);
  }
  return {};
}

Result<void> collect(const fathom_engine_options* engine_options, std::span<const int32_t> ids,
                     const std::string& path, const fathom_importance_options& options) {
  FATHOM_ASSIGN(const ImportanceFormat format, importance_format(options.format));
  FATHOM_ASSIGN(const Settings settings, read_settings(engine_options));
  const ImportanceCollector* collector = nullptr;
  const auto wrap = [&](std::unique_ptr<Backend> inner,
                        const Pack& pack) -> Result<std::unique_ptr<Backend>> {
    FATHOM_ASSIGN(auto made, ImportanceCollector::make(std::move(inner), pack));
    collector = made.get();
    return std::unique_ptr<Backend>(std::move(made));
  };
  FATHOM_ASSIGN(const std::unique_ptr<fathom_engine> engine, open_engine(settings, wrap));
  FATHOM_ASSIGN(const WindowOptions windowing, window_options(*engine, options.context_tokens, 0));
  FATHOM_ASSIGN(const std::vector<TextWindow> windows, cut_windows(ids, windowing));
  FATHOM_TRY(run_windows(*engine, ids, windows, windowing, settings.progress));
  FATHOM_ASSIGN(ImportanceMatrix importance, collector->result());
  if (const std::string_view dataset = view_or(options.dataset, ""); !dataset.empty())
    importance.datasets.emplace_back(dataset);
  importance.chunk_count = static_cast<int64_t>(windows.size());
  importance.chunk_tokens = windowing.context_tokens;
  return save_importance(importance, path, format);
}

}  // namespace

void fathom_quality_options_init(fathom_quality_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->size = sizeof *options;
}

fathom_status fathom_measure_quality(fathom_engine* engine, const int32_t* ids, size_t count,
                                     const fathom_quality_options* options, fathom_quality* quality) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(engine);
    FATHOM_REQUIRE(quality);
    FATHOM_ASSIGN(const auto tokens, ids_of(ids, count));
    fathom_quality_options defaults;
    fathom_quality_options_init(&defaults);
    FATHOM_ASSIGN(const fathom_quality_options read, read_sized(options, defaults, "quality options"));
    return measure(*engine, tokens, read, quality);
  });
}

void fathom_importance_options_init(fathom_importance_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->size = sizeof *options;
}

fathom_status fathom_collect_importance(const fathom_engine_options* engine_options, const int32_t* ids,
                                        size_t count, const char* path,
                                        const fathom_importance_options* options) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(path);
    FATHOM_ASSIGN(const auto tokens, ids_of(ids, count));
    fathom_importance_options defaults;
    fathom_importance_options_init(&defaults);
    FATHOM_ASSIGN(const fathom_importance_options read, read_sized(options, defaults, "importance options"));
    return collect(engine_options, tokens, path, read);
  });
}

fathom_status fathom_compare(const char* path_a, const char* path_b, const char* filter, int32_t threads,
                             bool as_json, fathom_progress_fn progress, void* progress_user, char** report) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(report);
    if (threads < 0 || threads > 1024)
      return Error::invalid("threads: expected 0 to 1024, found {}", threads);
    FATHOM_ASSIGN(const std::string a, find_model(path_a));
    FATHOM_ASSIGN(const std::string b, find_model(path_b));
    FATHOM_ASSIGN(const Pack pack_a, open_pack(a));
    FATHOM_ASSIGN(const Pack pack_b, open_pack(b));
    const CompareOptions options{.filter = std::string(view_or(filter, "")),
                                 .thread_count = threads,
                                 .progress = wrap_progress(progress, progress_user)};
    FATHOM_ASSIGN(const PackComparison comparison, compare_packs(pack_a, pack_b, options));
    *report = copy_text(as_json ? comparison_json(comparison) : comparison_text(comparison));
    return {};
  });
}
