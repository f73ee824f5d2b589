#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "capi/handles.h"

namespace fathom::capi {
namespace {

thread_local std::string last_error;

void* allocate(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

fathom_status report(const Error& error) noexcept {
  try {
    last_error = error.message;
  } catch (...) {
    last_error.clear();  // no memory for the message; the code still tells
  }
  return static_cast<fathom_status>(error.code);
}

char* copy_text(std::string_view text) {
  char* copy = static_cast<char*>(allocate(text.size() + 1));
  std::copy(text.begin(), text.end(), copy);
  copy[text.size()] = '\0';
  return copy;
}

int32_t* copy_ids(const std::vector<int32_t>& ids) {
  auto* copy = static_cast<int32_t*>(allocate(std::max<size_t>(1, ids.size()) * sizeof(int32_t)));
  std::copy(ids.begin(), ids.end(), copy);
  return copy;
}

Result<std::span<const int32_t>> ids_of(const int32_t* ids, size_t count) {
  if (ids == nullptr && count != 0) return Error::invalid("ids: expected {} values, found NULL", count);
  return std::span<const int32_t>(ids, count);
}

ProgressFn wrap_progress(fathom_progress_fn progress, void* user) {
  if (progress == nullptr) return {};
  return [progress, user](const Progress& now) {
    const std::string stage(now.stage), unit(now.unit);
    const fathom_progress told{
        .stage = stage.c_str(), .unit = unit.c_str(), .done = now.done, .total = now.total};
    return progress(user, &told);
  };
}

Result<std::string> find_model(const char* path) {
  if (path != nullptr && *path != '\0') return std::string(path);
  if (const char* named = std::getenv("FATHOM_MODEL"); named != nullptr && *named != '\0')
    return std::string(named);
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = program.parent_path();
  for (const std::filesystem::path& place : {folder / "models/mini", folder / "../share/fathom/models/mini",
                                             std::filesystem::path(FATHOM_EMBEDDED_MODEL)}) {
    if (file_exists((place / "config.json").string())) return place.lexically_normal().string();
  }
  return Error::not_found(
      "the embedded model is neither beside the program ({}/models/mini, {}/../share/fathom/models/mini) nor "
      "at "
      "{}: name a model, or set FATHOM_MODEL",
      folder.string(), folder.string(), FATHOM_EMBEDDED_MODEL);
}

std::string model_name(const std::string& path) {
  std::filesystem::path file(path);
  if (!file.has_filename()) file = file.parent_path();  // "folder/"
  std::string name = file.filename().string();
  if (name.ends_with(".gguf")) return file.stem().string();
  if (name.ends_with(".safetensors") || name.ends_with(".json"))
    return std::filesystem::absolute(file).parent_path().filename().string();
  if (name.empty() || name == "." || name == "..") {
    std::error_code error;
    return std::filesystem::weakly_canonical(path, error).filename().string();
  }
  return name;
}

}  // namespace fathom::capi

using namespace fathom;
using namespace fathom::capi;

const char* fathom_last_error(void) { return last_error.c_str(); }

const char* fathom_status_name(fathom_status status) {
  switch (status) {
    case FATHOM_OK:
      return "ok";
    case FATHOM_INVALID_ARGUMENT:
      return "invalid argument";
    case FATHOM_NOT_FOUND:
      return "not found";
    case FATHOM_IO:
      return "input or output failed";
    case FATHOM_BAD_PACK:
      return "bad pack";
    case FATHOM_UNSUPPORTED:
      return "unsupported";
    case FATHOM_NO_MEMORY:
      return "no memory";
    case FATHOM_STATE:
      return "wrong state";
    case FATHOM_CONTEXT_FULL:
      return "context full";
    case FATHOM_CANCELLED:
      return "cancelled";
    case FATHOM_INTERNAL:
      return "internal error";
    case FATHOM_BUSY:
      return "busy";
  }
  return "unknown status";
}

const char* fathom_version(void) { return FATHOM_VERSION; }

void fathom_free(void* memory) { std::free(memory); }

void fathom_set_log(fathom_log_fn log, void* user) {
  if (log == nullptr) {
    set_log_sink({});
    return;
  }
  set_log_sink([log, user](LogLevel level, std::string_view line) {
    const std::string text(line);
    log(user, static_cast<fathom_log_level>(level), text.c_str());
  });
}
