// What stands behind the C API's handles, and how errors cross it.
#pragma once

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "engine/memory_plan.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "fathom/fathom.h"
#include "model/model.h"
#include "text/chat_parser.h"
#include "text/tokenizer.h"

struct fathom_tokenizer {
  fathom::Tokenizer tokenizer;
};

struct fathom_engine {
  std::string path;
  std::string name;
  std::string numerics;
  std::string ced;
  std::string backend_description;
  fathom::MemoryPlan plan;
  fathom::PackAudit audit;
  int64_t file_bytes = 0;
  int64_t checkpoint_bytes = 0;
  int64_t session_bytes = 0;  // planned for the sessions that live now
  std::unique_ptr<fathom_tokenizer> tokenizer;
  std::unique_ptr<fathom::Backend> backend;  // before the model, which uses it to the end
  std::unique_ptr<fathom::Model> model;
};

struct fathom_session {
  fathom_engine* engine = nullptr;
  std::unique_ptr<fathom::Session> session;
  fathom::ProgressFn progress;
  std::optional<fathom::Sampler> sampler;  // of the last options: its buffers are worth keeping
  int64_t planned_bytes = 0;
};

struct fathom_snapshot {
  const fathom_engine* engine = nullptr;
  fathom::SavedState saved;
};

namespace fathom::capi {

/// Keeps the message for fathom_last_error() and returns the code.
fathom_status report(const Error& error) noexcept;

/// Runs a body that returns Result<void>; nothing is thrown past it.
template <class Body>
fathom_status guarded(Body&& body) noexcept {
  try {
    const Result<void> result = body();
    return result.ok() ? FATHOM_OK : report(result.error());
  } catch (const std::bad_alloc&) {
    return report({ErrorCode::kNoMemory, "out of memory"});
  } catch (const std::exception& exception) {
    return report({ErrorCode::kInternal, exception.what()});
  } catch (...) {
    return report({ErrorCode::kInternal, "unknown exception"});
  }
}

#define FATHOM_REQUIRE(pointer) \
  if ((pointer) == nullptr) return ::fathom::Error::invalid("{}: expected a value, found NULL", #pointer)

/// A struct that begins with its size, as the caller's version of the library knew it; the rest keeps
/// `defaults`. NULL is all defaults.
template <class Struct>
Result<Struct> read_sized(const Struct* from, Struct defaults, const char* name) {
  if (from == nullptr) return defaults;
  if (from->size < sizeof(size_t))
    return Error::invalid("{}: its size is {}: initialise it with its _init function", name, from->size);
  std::memcpy(&defaults, from, std::min(from->size, sizeof(Struct)));
  return defaults;
}

/// The other way: fills as much as the caller has room for.
template <class Struct>
void write_sized(const Struct& value, Struct* to) {
  const size_t room = to->size == 0 ? sizeof(Struct) : std::min(to->size, sizeof(Struct));
  std::memcpy(to, &value, room);
  to->size = room;
}

/// Memory for fathom_free(). Throws std::bad_alloc, which guarded() catches.
char* copy_text(std::string_view text);
int32_t* copy_ids(const std::vector<int32_t>& ids);

inline std::string_view view_or(const char* text, std::string_view otherwise) {
  return text == nullptr || *text == '\0' ? otherwise : std::string_view(text);
}

/// `count` ids of a caller.
Result<std::span<const int32_t>> ids_of(const int32_t* ids, size_t count);

ProgressFn wrap_progress(fathom_progress_fn progress, void* user);

/// `path`, or where $FATHOM_MODEL or the embedded model is; see fathom_engine_options.
Result<std::string> find_model(const char* path);
/// The last part of the path: "DeepSeek-V4.1-Flash" of a folder or file of that name.
std::string model_name(const std::string& path);

Result<Tokenizer> load_tokenizer(const TokenizerSource& source);

/// The options in the engine's terms.
struct Settings {
  std::string path;
  std::string backend;
  std::string cpu_isa;
  std::string numerics;
  std::string ced;
  std::string engram_path;  // empty: the tables in the pack itself
  int threads = 0;
  bool pin_threads = false;
  ModelOptions model;
  int64_t context_tokens = 0;  // 0: not said
  int sessions = 1;
  int64_t budget_bytes = 0;
  int64_t checkpoint_bytes = 0;
  ProgressFn progress;
};
Result<Settings> read_settings(const fathom_engine_options* options);
/// Wraps the backend of an engine about to be loaded from `pack`.
using BackendWrapper = std::function<Result<std::unique_ptr<Backend>>(std::unique_ptr<Backend>, const Pack& pack)>;
Result<std::unique_ptr<fathom_engine>> open_engine(const Settings& settings, const BackendWrapper& wrap = {});
/// `context_tokens` 0: as planned when the engine was opened.
Result<std::unique_ptr<fathom_session>> make_session(fathom_engine& engine, int64_t context_tokens);
Result<MemoryPlan> plan_settings(const Pack& pack, const Settings& settings, const Backend& backend);

}  // namespace fathom::capi
