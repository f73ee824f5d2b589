/* The C API from C: opens the embedded model and goes through a session's life. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fathom/fathom.h"

static int failures = 0;

static void check(int condition, const char* text, int line) {
  if (condition) return;
  fprintf(stderr, "%d: %s; last error: %s\n", line, text, fathom_last_error());
  ++failures;
}
#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)
#define OK(call) check((call) == FATHOM_OK, #call, __LINE__)

static bool count_calls(void* user, const fathom_progress* progress) {
  int* calls = user;
  ++*calls;
  return progress->total > 0;
}

static void generate(fathom_session* session, int count, int32_t* out) {
  fathom_sampling sampling;
  fathom_sampling_init(&sampling);
  sampling.seed = 7;
  for (int step = 0; step < count; ++step) {
    OK(fathom_sample(session, &sampling, &out[step]));
    OK(fathom_eval(session, out[step]));
  }
}

static void test_states(fathom_session* session, const char* folder) {
  int32_t first[8], second[8];
  fathom_snapshot* snapshot = NULL;
  char path[1024];
  OK(fathom_snapshot_take(session, &snapshot));
  CHECK(fathom_snapshot_bytes(snapshot) > 0);
  int64_t position = fathom_session_position(session);
  snprintf(path, sizeof path, "%s/c_api_test.state", folder);
  OK(fathom_session_save(session, path));
  generate(session, 8, first);

  OK(fathom_snapshot_restore(session, snapshot));
  CHECK(fathom_session_position(session) == position);
  generate(session, 8, second);
  CHECK(memcmp(first, second, sizeof first) == 0);

  OK(fathom_session_rewind(session, position + 3));
  int32_t token = -1;
  CHECK(fathom_sample(session, NULL, &token) == FATHOM_STATE);
  CHECK(token == -1);
  CHECK(strlen(fathom_last_error()) > 0);
  for (int step = 3; step < 8; ++step) OK(fathom_eval(session, first[step]));

  fathom_session_invalidate(session);
  CHECK(fathom_session_position(session) == 0);
  OK(fathom_session_load(session, path));
  CHECK(fathom_session_position(session) == position);
  generate(session, 8, second);
  CHECK(memcmp(first, second, sizeof first) == 0);
  fathom_snapshot_free(snapshot);
  remove(path);
}

static void test_logits(fathom_session* session, int32_t vocab) {
  float* logits = malloc((size_t)vocab * sizeof *logits);
  OK(fathom_copy_logits(session, logits, (size_t)vocab));
  CHECK(fathom_copy_logits(session, logits, 3) == FATHOM_INVALID_ARGUMENT);
  fathom_logprob best[3];
  size_t count = 3;
  OK(fathom_top_logprobs(session, best, &count));
  CHECK(count == 3);
  CHECK(best[0].logprob >= best[1].logprob && best[1].logprob >= best[2].logprob);
  double logprob = 0;
  OK(fathom_token_logprob(session, best[1].id, &logprob));
  CHECK(logprob - best[1].logprob < 1e-9 && best[1].logprob - logprob < 1e-9);
  int32_t id = -1;
  OK(fathom_argmax(session, NULL, 0, &id));
  CHECK(id == best[0].id);
  OK(fathom_argmax(session, &id, 1, &id));
  CHECK(id == best[1].id);
  free(logits);
}

static void test_session(fathom_engine* engine, const char* folder) {
  const fathom_tokenizer* tokenizer = fathom_engine_tokenizer(engine);
  const char* text = "Once upon a time there was";
  int32_t* ids = NULL;
  size_t count = 0;
  OK(fathom_tokenize(tokenizer, text, strlen(text), false, &ids, &count));
  CHECK(count > 0);
  char* back = NULL;
  size_t bytes = 0;
  OK(fathom_detokenize(tokenizer, ids, count, &back, &bytes));
  CHECK(back != NULL && bytes == strlen(text) && strcmp(back, text) == 0);
  fathom_free(back);

  fathom_session* session = NULL;
  OK(fathom_session_create(engine, 256, &session));
  int calls = 0;
  fathom_session_set_progress(session, count_calls, &calls);
  fathom_sync_result result;
  OK(fathom_sync(session, ids, count, &result));
  CHECK(result.action == FATHOM_REBUILT && result.evaluated_tokens == (int64_t)count);
  CHECK(calls >= 1);
  OK(fathom_sync(session, ids, count, &result));
  CHECK(result.action == FATHOM_REUSED && result.reused_tokens == (int64_t)count);
  size_t held = 0;
  const int32_t* tokens = fathom_session_tokens(session, &held);
  CHECK(held == count && memcmp(tokens, ids, count * sizeof *ids) == 0);
  CHECK(fathom_session_common_prefix(session, ids, count) == (int64_t)count);

  fathom_engine_info info;
  memset(&info, 0, sizeof info);
  OK(fathom_engine_get_info(engine, &info));
  CHECK(info.size == sizeof info && info.vocab_size > 0 && info.layers > 0);
  test_logits(session, info.vocab_size);
  test_states(session, folder);
  fathom_session_free(session);
  fathom_free(ids);
}

int main(int argc, char** argv) {
  fathom_engine_options options;
  fathom_engine_options_init(&options);
  options.context_tokens = 256;
  options.threads = 2;
  fathom_engine* engine = NULL;
  OK(fathom_engine_open(&options, &engine));
  if (engine != NULL) test_session(engine, argc > 1 ? argv[1] : ".");
  fathom_engine_close(engine);
  CHECK(fathom_engine_open(&options, NULL) == FATHOM_INVALID_ARGUMENT);
  return failures == 0 ? 0 : 1;
}
