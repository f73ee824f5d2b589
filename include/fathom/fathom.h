/* Fathom's C API: the only installed header, and all that programs in apps/ may use.
 *
 * Errors. Functions that can fail return a fathom_status; anything but FATHOM_OK leaves a one-line message in
 * fathom_last_error() of the calling thread. On failure outputs are untouched. Nothing is printed, nothing
 * throws. Passing NULL where a value is required is FATHOM_INVALID_ARGUMENT.
 *
 * Ownership. What a function creates, the matching _free or _close releases; both accept NULL. Memory that
 * is returned through a `**` parameter belongs to the caller and goes back through fathom_free(). Other
 * pointers are borrowed; how long they live is said where they appear.
 *
 * Threads. An engine and all its sessions are used by one thread at a time. Functions on a
 * const fathom_tokenizer* or const fathom_engine* may run on any thread at once. Different engines are
 * independent. Close an engine after its sessions and snapshots are freed.
 *
 * Growth. Structs begin with their size, which the _init function sets; later versions only append members,
 * and 0 in a member that the caller does not know means its default.
 */
#ifndef FATHOM_FATHOM_H_
#define FATHOM_FATHOM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fathom_status {
  FATHOM_OK = 0,
  FATHOM_INVALID_ARGUMENT = 1, /* the caller asked for something meaningless */
  FATHOM_NOT_FOUND = 2,        /* a file, tensor or entry that was named does not exist */
  FATHOM_IO = 3,               /* the operating system refused to read or write */
  FATHOM_BAD_PACK = 4,         /* a file contradicts its format, its config or itself */
  FATHOM_UNSUPPORTED = 5,      /* well-formed, but not something this build can run */
  FATHOM_NO_MEMORY = 6,        /* the plan does not fit the budget; the message holds the plan (many lines) */
  FATHOM_STATE = 7,            /* the object is not in a state that allows the call */
  FATHOM_CONTEXT_FULL = 8,     /* the tokens do not fit the context */
  FATHOM_CANCELLED = 9,        /* a callback said stop */
  FATHOM_INTERNAL = 10,        /* a bug */
  FATHOM_BUSY = 11             /* too much waits already; the same may work later */
} fathom_status;

/* Message of the last failed call on this thread, "" if none failed. Valid until the thread's next call. */
const char* fathom_last_error(void);
const char* fathom_status_name(fathom_status status); /* "no memory" */
const char* fathom_version(void);
void fathom_free(void* memory);

/* Log lines of the whole library, from any thread. Call while no other call is running; NULL drops lines. */
typedef enum fathom_log_level { FATHOM_DEBUG, FATHOM_INFO, FATHOM_WARNING, FATHOM_ERROR } fathom_log_level;
typedef void (*fathom_log_fn)(void* user, fathom_log_level level, const char* line);
void fathom_set_log(fathom_log_fn log, void* user);

/* Progress of long work, called on the thread that called. Returning false cancels: FATHOM_CANCELLED. */
typedef struct fathom_progress {
  const char* stage; /* "load", "prefill", ... */
  const char* unit;  /* "bytes", "tokens", ... */
  int64_t done;
  int64_t total;
} fathom_progress;
typedef bool (*fathom_progress_fn)(void* user, const fathom_progress* progress);

/* ---- Engine: a model, loaded ---- */

typedef struct fathom_engine fathom_engine;
typedef struct fathom_tokenizer fathom_tokenizer;

typedef struct fathom_engine_options {
  size_t size;
  const char* model_path;   /* folder, .safetensors, .gguf; NULL: $FATHOM_MODEL, else the embedded model */
  const char* backend;      /* "cpu" (default), "reference" */
  const char* cpu_isa;      /* "auto" (default), "amx", "avx512", "avx2", "neon_dot", "neon", "portable" */
  const char* numerics;     /* "official" (default), "exact": float32 without activation quantisers */
  const char* ced;          /* "exact" (default), "bounded", "off": docs/model/encoder_decoder.md */
  int32_t threads;          /* 0: one a core */
  int32_t io_threads;       /* reads in flight for Engram rows; 0: 8 */
  int32_t step_rows;        /* rows of one step; 0: 512 */
  int32_t rewind_tokens;    /* positions a session can take back without a checkpoint; 0: 32 */
  int64_t context_tokens;   /* of each session, for the memory plan; 0: 4096 or the model's, if less */
  int32_t sessions;         /* for the memory plan; 0: 1 */
  int64_t budget_bytes;     /* memory that may be planned; 0: what the machine has available */
  int64_t checkpoint_bytes; /* automatic checkpoints of one session; 0: 64 MiB, -1: none */
  fathom_progress_fn progress; /* of opening */
  void* progress_user;
  const char* engram_path;  /* another copy of the pack, maybe on another disk, whose Engram tables are read */
  bool pin_threads;         /* each to a core of its own, the calling one apart */
} fathom_engine_options;
void fathom_engine_options_init(fathom_engine_options* options);

/* Refuses (FATHOM_NO_MEMORY) what the plan says does not fit, before anything is allocated. */
fathom_status fathom_engine_open(const fathom_engine_options* options, fathom_engine** engine);
void fathom_engine_close(fathom_engine* engine);

typedef struct fathom_engine_info {
  size_t size; /* set by the caller, or by fathom_engine_get_info when it is 0 */
  const char* model_name; /* strings live as long as the engine */
  const char* model_path;
  const char* dialect;
  const char* backend; /* what was chosen: "cpu avx512, 2 threads" */
  const char* numerics;
  const char* ced;
  int32_t vocab_size;
  int32_t layers;
  int32_t step_rows;
  int64_t max_context_tokens; /* what the model was made for */
  int64_t file_bytes;
  int64_t weight_bytes;       /* resident: without Engram tables, draft and vision */
  int64_t planned_bytes;      /* the plan without its sessions, and live sessions */
  int64_t budget_bytes;
  int64_t engram_rows_asked, engram_rows_read, engram_bytes_read; /* since it was opened */
  bool has_engram, has_draft, has_vision;
  uint8_t fingerprint[32]; /* identifies the weights */
} fathom_engine_info;
fathom_status fathom_engine_get_info(const fathom_engine* engine, fathom_engine_info* info);
/* A few lines for people. */
fathom_status fathom_engine_summary(const fathom_engine* engine, char** text);
/* Lives as long as the engine. NULL when the pack has no tokenizer. */
const fathom_tokenizer* fathom_engine_tokenizer(const fathom_engine* engine);

/* ---- Looking at a pack without loading it: headers only ---- */

/* What the pack is and what is wrong with it. FATHOM_OK also for packs with problems, which the report
 * lists and `problems` (may be NULL) counts, as long as something could be read. `path` NULL as in
 * fathom_engine_options. */
fathom_status fathom_inspect(const char* path, bool as_json, char** report, size_t* problems);

typedef struct fathom_memory_plan {
  size_t size; /* as in fathom_engine_info */
  int64_t dense_bytes, expert_bytes, embedding_bytes, engram_projection_bytes; /* weights, mapped */
  int64_t engram_disk_bytes; /* read by row, never resident: not in the total */
  int64_t kv_bytes;          /* all sessions: rows, index keys, rings */
  int64_t tail_bytes;        /* between the chunks of a prompt */
  int64_t checkpoint_bytes;
  int64_t scratch_bytes;
  int64_t total_bytes, budget_bytes;
  int64_t largest_context_tokens; /* that fits, other things equal; 0: not even one token */
  bool fits;
  int64_t working_bytes;      /* of the backend's operations */
  int64_t engram_fetch_bytes; /* table rows on their way */
  int64_t host_bytes;         /* tokenizer, logits, token lists */
  int64_t program_bytes;      /* what the process holds already: not in the total, but in its peak */
} fathom_memory_plan;
/* `plan` and `report` (a table with advice) may be NULL. */
fathom_status fathom_plan(const fathom_engine_options* options, fathom_memory_plan* plan, char** report);

/* ---- Tokens ---- */

/* The tokenizer of a pack, or a tokenizer.json, without the model. `path` NULL as above. */
fathom_status fathom_tokenizer_open(const char* path, fathom_tokenizer** tokenizer);
void fathom_tokenizer_close(fathom_tokenizer* tokenizer); /* not for fathom_engine_tokenizer()'s */

/* With `parse_special`, spellings of control tokens become those tokens: for trusted text only. */
fathom_status fathom_tokenize(const fathom_tokenizer* tokenizer, const char* text, size_t text_bytes,
                              bool parse_special, int32_t** ids, size_t* count);
/* Bytes, which may end inside a character; also terminated by a NUL that is not counted. */
fathom_status fathom_detokenize(const fathom_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                char** text, size_t* text_bytes);
/* Not NUL-terminated; lives as long as the tokenizer. NULL and 0 for ids outside the vocabulary. */
const char* fathom_token_bytes(const fathom_tokenizer* tokenizer, int32_t id, size_t* bytes);
int32_t fathom_vocab_size(const fathom_tokenizer* tokenizer);

typedef enum fathom_token {
  FATHOM_TOKEN_BOS, FATHOM_TOKEN_EOS, FATHOM_TOKEN_PAD, FATHOM_TOKEN_SYSTEM, FATHOM_TOKEN_USER,
  FATHOM_TOKEN_ASSISTANT, FATHOM_TOKEN_THINK_OPEN, FATHOM_TOKEN_THINK_CLOSE, FATHOM_TOKEN_DSML,
  FATHOM_TOKEN_IMAGE, FATHOM_TOKEN_END_OF_TURN, FATHOM_TOKEN_FIM_BEGIN, FATHOM_TOKEN_FIM_HOLE,
  FATHOM_TOKEN_FIM_END
} fathom_token;
/* -1: not in the vocabulary. */
int32_t fathom_token_id(const fathom_tokenizer* tokenizer, fathom_token token);
int32_t fathom_find_token(const fathom_tokenizer* tokenizer, const char* text, size_t text_bytes);
/* Whether the id ends an answer: EOS, end of turn, or the start of another role's turn. */
bool fathom_is_stop(const fathom_tokenizer* tokenizer, int32_t id);

/* ---- Chat ---- */

typedef struct fathom_prompt {
  int32_t* ids;
  size_t count;
  size_t stable_count; /* leading ids that stay as they are when the next turns are appended */
  size_t image_count;  /* image tokens among the ids */
  char* text;          /* for people; never tokenize it */
  bool starts_in_thinking;
} fathom_prompt;
/* Renders {"messages": [...], ...}; accepted members: docs/formats/chat.md. `prompt` is overwritten. */
fathom_status fathom_chat_render(const fathom_tokenizer* tokenizer, const char* conversation_json,
                                 fathom_prompt* prompt);
void fathom_prompt_free(fathom_prompt* prompt); /* its members */

/* Splits an answer into reasoning, content and tool calls while it is written. One thread at a time; the
 * tokenizer must live longer. */
typedef struct fathom_parser fathom_parser;
typedef enum fathom_event_kind {
  FATHOM_EVENT_REASONING,      /* text: more reasoning */
  FATHOM_EVENT_CONTENT,        /* text: more of the answer */
  FATHOM_EVENT_CALL_START,     /* name, namespace_name */
  FATHOM_EVENT_CALL_ARGUMENTS, /* text: more of the arguments' JSON */
  FATHOM_EVENT_CALL_END,       /* the arguments are whole, valid JSON */
  FATHOM_EVENT_CALL_DROPPED    /* the call proved malformed; its markup follows as text */
} fathom_event_kind;
typedef struct fathom_event {
  fathom_event_kind kind;
  int32_t call; /* number of the call, from 0; -1 for text */
  const char* text; /* whole UTF-8 characters, NUL-terminated */
  size_t text_bytes;
  const char* name;
  const char* namespace_name;
} fathom_event;
typedef enum fathom_turn_end {
  FATHOM_TURN_OPEN, FATHOM_TURN_EOS, FATHOM_TURN_END_OF_TURN, FATHOM_TURN_ROLE_TOKEN, FATHOM_TURN_CUT
} fathom_turn_end;
/* `conversation_json` (may be NULL) gives the tools' schemas, which decide the types of arguments. */
fathom_status fathom_parser_create(const fathom_tokenizer* tokenizer, bool starts_in_thinking,
                                   const char* conversation_json, fathom_parser** parser);
void fathom_parser_free(fathom_parser* parser);
/* Events live until the parser's next call. */
fathom_status fathom_parser_feed(fathom_parser* parser, const int32_t* ids, size_t count,
                                 const fathom_event** events, size_t* event_count);
fathom_status fathom_parser_finish(fathom_parser* parser, const fathom_event** events, size_t* event_count);
fathom_turn_end fathom_parser_end(const fathom_parser* parser);
/* The turn so far as an assistant message {"role": "assistant", "content": ..., ...} to append to the
 * conversation. Incomplete calls are left out. */
fathom_status fathom_parser_message(const fathom_parser* parser, char** message_json);

/* ---- Session: one sequence of tokens and its state ---- */

typedef struct fathom_session fathom_session;
fathom_status fathom_session_create(fathom_engine* engine, int64_t context_tokens, fathom_session** session);
void fathom_session_free(fathom_session* session);
/* Called between the steps of fathom_sync() and fathom_score(). NULL: none. */
void fathom_session_set_progress(fathom_session* session, fathom_progress_fn progress, void* user);

typedef enum fathom_sync_action {
  FATHOM_REUSED,   /* all tokens were there already */
  FATHOM_EXTENDED, /* what was there is a prefix: the rest was evaluated */
  FATHOM_REWOUND,  /* went back to the common prefix, then on */
  FATHOM_RESTORED, /* went back to a checkpoint, then on */
  FATHOM_REBUILT   /* began anew */
} fathom_sync_action;
typedef struct fathom_sync_result {
  fathom_sync_action action;
  int64_t reused_tokens;
  int64_t evaluated_tokens;
} fathom_sync_result;
/* Makes the session hold exactly these tokens, with logits for the next one. When cancelled it keeps what
 * was evaluated, and the next sync continues there. Image tokens are FATHOM_UNSUPPORTED. `result` may be
 * NULL. A step that fails with FATHOM_IO or FATHOM_BAD_PACK, here and below, leaves its sessions without
 * tokens: sync again. */
fathom_status fathom_sync(fathom_session* session, const int32_t* ids, size_t count,
                          fathom_sync_result* result);
fathom_status fathom_eval(fathom_session* session, int32_t id);
/* One token each for several sessions of one engine, in one step; no session twice, and at most the engine's
 * step_rows. All advance, or none. */
fathom_status fathom_eval_batch(fathom_session* const* sessions, const int32_t* ids, size_t count);
/* Log-probability of ids[1..count) given what precedes them: count - 1 values. The session then holds all. */
fathom_status fathom_score(fathom_session* session, const int32_t* ids, size_t count, double* logprobs);
/* Logits [vocab_size] that follow the token at `position`; valid during the call. Returning false ends the
 * evaluation: FATHOM_CANCELLED. */
typedef bool (*fathom_logits_fn)(void* user, int64_t position, const float* logits, size_t vocab_size);
/* Evaluates tokens after those that are held and shows the logits of each, in order. Every layer runs on
 * every token, so this is slower than fathom_sync(). The session then holds them all; when it ends early, up to
 * a step's tokens more than were shown. FATHOM_STATE after a cancelled sync. */
fathom_status fathom_evaluate(fathom_session* session, const int32_t* ids, size_t count, fathom_logits_fn show,
                              void* user);

int64_t fathom_session_position(const fathom_session* session); /* tokens held */
int64_t fathom_session_context(const fathom_session* session);  /* tokens that fit */
/* Until the session changes. */
const int32_t* fathom_session_tokens(const fathom_session* session, size_t* count);
int64_t fathom_session_common_prefix(const fathom_session* session, const int32_t* ids, size_t count);
/* Keeps the first `position` tokens, without logits. FATHOM_STATE when that is too far back: sync then. */
fathom_status fathom_session_rewind(fathom_session* session, int64_t position);
void fathom_session_invalidate(fathom_session* session); /* forgets all tokens and checkpoints */

/* ---- Choosing the next token ---- */

typedef struct fathom_logit_bias {
  int32_t id;
  float bias; /* added to the logit; -100 and below ban the token */
} fathom_logit_bias;

/* Order: bias, penalties, temperature, top_k, top_p, min_p, draw; exactly: src/engine/sampler.h. The draw
 * depends on seed and position only. */
typedef struct fathom_sampling {
  size_t size;
  float temperature;       /* 0: the most likely token, ties to the lower id. Default 1 */
  int32_t top_k;           /* 0: all. Default 0 */
  float top_p;             /* 1: all. Default 0.95 */
  float min_p;             /* of the most likely token's probability; 0: all. Default 0 */
  float repeat_penalty;    /* divides positive logits of tokens seen, multiplies others. Default 1 */
  float presence_penalty;  /* taken from logits of tokens seen. Default 0 */
  float frequency_penalty; /* taken once for each time seen. Default 0 */
  int32_t repeat_last_n;   /* tokens that count as seen; -1: all. Default 64 */
  int64_t prompt_tokens;   /* the first tokens, which presence and frequency do not count. Default 0 */
  uint64_t seed;           /* Default 0 */
  const fathom_logit_bias* bias;
  size_t bias_count;
} fathom_sampling;
void fathom_sampling_init(fathom_sampling* sampling);

/* Chooses, without evaluating. FATHOM_STATE when there are no logits (after rewind, before any sync).
 * `sampling` NULL: the defaults. */
fathom_status fathom_sample(fathom_session* session, const fathom_sampling* sampling, int32_t* id);
/* Most likely token that is not among `excluded` (may be NULL). */
fathom_status fathom_argmax(const fathom_session* session, const int32_t* excluded, size_t excluded_count,
                            int32_t* id);
/* `count` must be the vocabulary size. */
fathom_status fathom_copy_logits(const fathom_session* session, float* logits, size_t count);

typedef struct fathom_logprob {
  int32_t id;
  double logprob; /* natural logarithm; of the model's own distribution, whatever the sampling */
} fathom_logprob;
/* Best first. `*count` says how many are wanted, then how many there are. */
fathom_status fathom_top_logprobs(const fathom_session* session, fathom_logprob* out, size_t* count);
fathom_status fathom_token_logprob(const fathom_session* session, int32_t id, double* logprob);

/* ---- State ---- */

typedef struct fathom_snapshot fathom_snapshot; /* tokens, state and logits, in memory */
fathom_status fathom_snapshot_take(const fathom_session* session, fathom_snapshot** snapshot);
/* Into any session of the same engine whose context is large enough. */
fathom_status fathom_snapshot_restore(fathom_session* session, const fathom_snapshot* snapshot);
size_t fathom_snapshot_bytes(const fathom_snapshot* snapshot);
void fathom_snapshot_free(fathom_snapshot* snapshot);
/* A file that only the same model in the same numerics loads; docs/formats/saved_state.md. On failure
 * neither the session nor an existing file has changed. */
fathom_status fathom_session_save(const fathom_session* session, const char* path);
fathom_status fathom_session_load(fathom_session* session, const char* path);

/* ---- Quality: perplexity, and the distance from another model's predictions; docs/eval.md ---- */

typedef struct fathom_quality_options {
  size_t size;
  fathom_engine* reference;   /* another engine of the same vocabulary, run side by side; NULL: none */
  const char* reference_path; /* or what save_path kept of one; NULL: none. Not both */
  const char* save_path;      /* keeps this engine's predictions; NULL: no */
  int64_t context_tokens;     /* of a window; 0: 2048 or the model's, if less */
  int64_t stride_tokens;      /* from window to window; 0: each begins where the last one ends */
  fathom_progress_fn progress;
  void* progress_user;
} fathom_quality_options;
void fathom_quality_options_init(fathom_quality_options* options);

/* A mean over tokens and its standard errors: as if tokens were independent, and from a bootstrap over
 * windows. NaN where there are fewer than two. */
typedef struct fathom_estimate {
  double value, error, window_error;
} fathom_estimate;
typedef struct fathom_quality {
  size_t size; /* as in fathom_engine_info */
  int64_t tokens, windows;
  bool has_reference;
  fathom_estimate nll, perplexity; /* nats a token */
  /* Zero without a reference. */
  fathom_estimate reference_nll, reference_perplexity;
  fathom_estimate nll_difference;         /* model - reference, paired */
  fathom_estimate divergence;             /* KL(reference || model), nats a token */
  double divergence_median, divergence_p99, divergence_max;
  fathom_estimate same_top;               /* fraction of tokens whose most likely token is the same */
  fathom_estimate probability_difference; /* of the text's token, model - reference */
  uint8_t reference_fingerprint[32];
} fathom_quality;
/* Documents in `ids` begin at BOS tokens; a window that begins elsewhere gets one in front. `options` may be
 * NULL. The sessions it needs must fit the engines' budgets. */
fathom_status fathom_measure_quality(fathom_engine* engine, const int32_t* ids, size_t count,
                                     const fathom_quality_options* options, fathom_quality* quality);

/* ---- Tools for packs ---- */

typedef struct fathom_importance_options {
  size_t size;
  const char* format;     /* "gguf" (default) or "dat" */
  const char* dataset;    /* name of the text, for the file; NULL: none */
  int64_t context_tokens; /* of a window; 0: 2048 or the model's, if less */
} fathom_importance_options;
void fathom_importance_options_init(fathom_importance_options* options);
/* Runs a model over a text and writes the mean squares of what goes into each matrix to `path`;
 * docs/formats/imatrix.md. Progress is the engine options'. */
fathom_status fathom_collect_importance(const fathom_engine_options* engine_options, const int32_t* ids,
                                        size_t count, const char* path,
                                        const fathom_importance_options* options);

/* Tensor by tensor, how far the values of two packs are apart. `filter` is a shell pattern for official names;
 * NULL: all. Paths and `report` as in fathom_inspect. `threads` 0: one a core. */
fathom_status fathom_compare(const char* path_a, const char* path_b, const char* filter, int32_t threads,
                             bool as_json, fathom_progress_fn progress, void* progress_user, char** report);

#ifdef __cplusplus
}
#endif
#endif /* FATHOM_FATHOM_H_ */
