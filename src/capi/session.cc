#include <algorithm>

#include "capi/handles.h"

using namespace fathom;
using namespace fathom::capi;

namespace {

Result<SamplerOptions> to_options(const fathom_sampling* given) {
  fathom_sampling defaults;
  fathom_sampling_init(&defaults);
  FATHOM_ASSIGN(const fathom_sampling from, read_sized(given, defaults, "sampling"));
  if (from.bias == nullptr && from.bias_count != 0)
    return Error::invalid("bias: expected {} values, found NULL", from.bias_count);
  SamplerOptions options{.temperature = from.temperature,
                         .top_k = from.top_k,
                         .top_p = from.top_p,
                         .min_p = from.min_p,
                         .repeat_penalty = from.repeat_penalty,
                         .presence_penalty = from.presence_penalty,
                         .frequency_penalty = from.frequency_penalty,
                         .repeat_last_n = from.repeat_last_n,
                         .prompt_tokens = from.prompt_tokens,
                         .seed = from.seed,
                         .bias = {}};
  for (const fathom_logit_bias& bias : std::span(from.bias, from.bias_count))
    options.bias.push_back({.id = bias.id, .bias = bias.bias});
  return options;
}

fathom_sync_result to_c(const SyncResult& result) {
  return {.action = static_cast<fathom_sync_action>(result.action),
          .reused_tokens = result.reused_tokens,
          .evaluated_tokens = result.evaluated_tokens};
}
static_assert(static_cast<int>(SyncAction::kReused) == FATHOM_REUSED);
static_assert(static_cast<int>(SyncAction::kRewound) == FATHOM_REWOUND);
static_assert(static_cast<int>(SyncAction::kRebuilt) == FATHOM_REBUILT);

}  // namespace

void fathom_session_set_progress(fathom_session* session, fathom_progress_fn progress, void* user) {
  if (session != nullptr) session->progress = wrap_progress(progress, user);
}

fathom_status fathom_sync(fathom_session* session, const int32_t* ids, size_t count,
                          fathom_sync_result* result) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_ASSIGN(const auto tokens, ids_of(ids, count));
    FATHOM_ASSIGN(const SyncResult synced, session->session->sync(tokens, session->progress));
    if (result != nullptr) *result = to_c(synced);
    return {};
  });
}

fathom_status fathom_eval(fathom_session* session, int32_t id) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    return session->session->eval(id);
  });
}

fathom_status fathom_eval_batch(fathom_session* const* sessions, const int32_t* ids, size_t count) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(sessions);
    FATHOM_ASSIGN(const auto tokens, ids_of(ids, count));
    std::vector<Session*> batch;
    for (size_t which = 0; which < count; ++which) {
      FATHOM_REQUIRE(sessions[which]);
      batch.push_back(sessions[which]->session.get());
    }
    return Session::eval_batch(batch, tokens);
  });
}

fathom_status fathom_score(fathom_session* session, const int32_t* ids, size_t count, double* logprobs) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_ASSIGN(const auto tokens, ids_of(ids, count));
    if (count > 1) FATHOM_REQUIRE(logprobs);
    FATHOM_ASSIGN(const std::vector<double> scores, session->session->score(tokens, session->progress));
    std::copy(scores.begin(), scores.end(), logprobs);
    return {};
  });
}

fathom_status fathom_evaluate(fathom_session* session, const int32_t* ids, size_t count, fathom_logits_fn show,
                              void* user) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(show);
    FATHOM_ASSIGN(const auto tokens, ids_of(ids, count));
    const auto pass_on = [&](int64_t position, std::span<const float> logits) -> Result<void> {
      if (show(user, position, logits.data(), logits.size())) return {};
      return Error::cancelled("evaluation ended by its caller at position {}", position);
    };
    return session->session->evaluate(tokens, pass_on, session->progress);
  });
}

int64_t fathom_session_position(const fathom_session* session) {
  return session == nullptr ? 0 : session->session->position();
}

int64_t fathom_session_context(const fathom_session* session) {
  return session == nullptr ? 0 : session->session->context_tokens();
}

const int32_t* fathom_session_tokens(const fathom_session* session, size_t* count) {
  if (count != nullptr) *count = session == nullptr ? 0 : session->session->tokens().size();
  return session == nullptr ? nullptr : session->session->tokens().data();
}

int64_t fathom_session_common_prefix(const fathom_session* session, const int32_t* ids, size_t count) {
  if (session == nullptr || ids == nullptr) return 0;
  return session->session->common_prefix({ids, count});
}

fathom_status fathom_session_rewind(fathom_session* session, int64_t position) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    return session->session->rewind(position);
  });
}

void fathom_session_invalidate(fathom_session* session) {
  if (session != nullptr) session->session->invalidate();
}

void fathom_sampling_init(fathom_sampling* sampling) {
  if (sampling == nullptr) return;
  const SamplerOptions defaults;
  *sampling = {.size = sizeof *sampling,
               .temperature = defaults.temperature,
               .top_k = defaults.top_k,
               .top_p = defaults.top_p,
               .min_p = defaults.min_p,
               .repeat_penalty = defaults.repeat_penalty,
               .presence_penalty = defaults.presence_penalty,
               .frequency_penalty = defaults.frequency_penalty,
               .repeat_last_n = defaults.repeat_last_n,
               .prompt_tokens = defaults.prompt_tokens,
               .seed = defaults.seed,
               .bias = nullptr,
               .bias_count = 0};
}

fathom_status fathom_sample(fathom_session* session, const fathom_sampling* sampling, int32_t* id) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(id);
    FATHOM_ASSIGN(SamplerOptions options, to_options(sampling));
    FATHOM_ASSIGN(const auto logits, session->session->logits());
    if (!session->sampler || session->sampler->options() != options) {
      FATHOM_ASSIGN(Sampler sampler, Sampler::make(std::move(options), static_cast<int32_t>(logits.size())));
      session->sampler.emplace(std::move(sampler));
    }
    FATHOM_ASSIGN(*id, session->sampler->sample(logits, session->session->tokens()));
    return {};
  });
}

fathom_status fathom_argmax(const fathom_session* session, const int32_t* excluded, size_t excluded_count,
                            int32_t* id) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(id);
    FATHOM_ASSIGN(const auto without, ids_of(excluded, excluded_count));
    FATHOM_ASSIGN(const auto logits, session->session->logits());
    FATHOM_ASSIGN(*id, argmax(logits, without));
    return {};
  });
}

fathom_status fathom_copy_logits(const fathom_session* session, float* logits, size_t count) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(logits);
    FATHOM_ASSIGN(const auto from, session->session->logits());
    if (count != from.size()) return Error::invalid("count: expected {}, found {}", from.size(), count);
    std::copy(from.begin(), from.end(), logits);
    return {};
  });
}

fathom_status fathom_top_logprobs(const fathom_session* session, fathom_logprob* out, size_t* count) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(count);
    if (*count > 0) FATHOM_REQUIRE(out);
    FATHOM_ASSIGN(const auto logits, session->session->logits());
    const size_t wanted = std::min(*count, logits.size());
    FATHOM_ASSIGN(const auto best, top_logprobs(logits, static_cast<int64_t>(wanted)));
    for (size_t rank = 0; rank < best.size(); ++rank) out[rank] = {best[rank].id, best[rank].logprob};
    *count = best.size();
    return {};
  });
}

fathom_status fathom_token_logprob(const fathom_session* session, int32_t id, double* logprob) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(logprob);
    FATHOM_ASSIGN(const auto logits, session->session->logits());
    FATHOM_ASSIGN(*logprob, token_logprob(logits, id));
    return {};
  });
}

fathom_status fathom_snapshot_take(const fathom_session* session, fathom_snapshot** snapshot) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(snapshot);
    FATHOM_ASSIGN(SavedState saved, session->session->snapshot());
    *snapshot = new fathom_snapshot{session->engine, std::move(saved)};
    return {};
  });
}

fathom_status fathom_snapshot_restore(fathom_session* session, const fathom_snapshot* snapshot) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(snapshot);
    if (snapshot->engine != session->engine) return Error::invalid("the snapshot is of another engine");
    return session->session->restore(snapshot->saved);
  });
}

size_t fathom_snapshot_bytes(const fathom_snapshot* snapshot) {
  return snapshot == nullptr ? 0 : snapshot->saved.bytes();
}

void fathom_snapshot_free(fathom_snapshot* snapshot) { delete snapshot; }

fathom_status fathom_session_save(const fathom_session* session, const char* path) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(path);
    return session->session->save(path);
  });
}

fathom_status fathom_session_load(fathom_session* session, const char* path) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(session);
    FATHOM_REQUIRE(path);
    return session->session->load(path);
  });
}
