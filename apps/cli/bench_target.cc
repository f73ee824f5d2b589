#include "bench_target.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "failure.h"
#include "interrupt.h"
#include "measure/http_target.h"
#include "measure/local_target.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

/// A word of a shell's command line.
std::string shell_word(const std::string& word) {
  std::string quoted_word = "'";
  for (const char c : word) quoted_word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted_word + "'";
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

bool is_url(const std::string& text) { return text.rfind("http://", 0) == 0 || text.rfind("https://", 0) == 0; }

double parse_scale(const std::string& text) {
  const size_t slash = text.find('/');
  char* end = nullptr;
  const double numerator = std::strtod(text.c_str(), &end);
  const bool has_numerator = end != text.c_str() && *end == (slash == text.npos ? '\0' : '/');
  double denominator = 1;
  if (slash != text.npos) {
    const char* rest = text.c_str() + slash + 1;
    denominator = std::strtod(rest, &end);
    if (end == rest || *end != '\0') denominator = 0;
  }
  const double scale = numerator / denominator;
  if (!has_numerator || !(scale > 0) || !(scale <= 1024))
    fail_usage("--scale: expected a factor like 1/16 or 0.5, found \"{}\"", text);
  return scale;
}

}  // namespace

std::string own_path() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail("the program's own file: {}", error.message());
  return path;
}

void BenchTarget::add(CLI::App& app) {
  app.add_option("--target", target,
                 "local: this engine, from the inside (default); serve: `fathom serve`, started afresh for "
                 "each series; "
                 "or the URL of a server")
      ->type_name("TARGET");
  app.add_option("--driver", driver,
                 fmt::format("How that server is spoken to: a file, or one of {} (default: fathom)",
                             fmt::join(measure::embedded_driver_names(), ", ")))
      ->type_name("NAME");
  app.add_option("--server-command", server_command,
                 "Starts the server afresh for each series; {port} in it becomes a free port")
      ->type_name("COMMAND");
  app.add_option("--api-key", api_key, "Sent to the server");
  app.add_option("--served-model", served_model, "Model to ask the server for (default: the first it names)");
  app.add_option("--pack", pack, "What the server has loaded, to name it by its SHA-256")->type_name("PATH");
  app.add_option("--tokenizer", tokenizer, "Pack or tokenizer.json that cuts the texts (default: --pack, else -m)")
      ->type_name("PATH");
  app.add_option("--server-log", log, "Where a started server writes (default: a temporary file)")
      ->type_name("FILE");
  model.add_all(app, "what is measured needs");
}

void BenchTarget::check_and_plan(int64_t context_tokens) {
  if (!is_local() && target != "serve" && !is_url(target))
    fail_usage("--target: expected local, serve or a URL, found \"{}\"", target);
  if (!is_url(target) && (!driver.empty() || !server_command.empty()))
    fail_usage("--driver and --server-command are for a --target that is a URL; {} has its own", target);
  if (model.context_tokens == 0) model.context_tokens = context_tokens;
  if (model.context_tokens < context_tokens)
    fail_usage("--ctx: expected at least the {} tokens that are measured, found {}", context_tokens,
               model.context_tokens);
  if (log.empty() && !is_local()) {
    std::string path = (std::filesystem::temp_directory_path() / "fathom-bench-XXXXXX").string();
    const int descriptor = mkstemp(path.data());
    if (descriptor < 0) fail("{}: cannot be made; --server-log names another file", path);
    close(descriptor);
    log = path;
    own_log = std::shared_ptr<void>(nullptr, [path](void*) { unlink(path.c_str()); });
  }
}

TargetFactory BenchTarget::factory() const {
  if (is_local()) {
    measure::LocalTargetOptions options;
    options.command = {own_path(), "bench", "worker"};
    const std::vector<std::string> arguments = model.arguments();
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
    options.command.emplace_back("--socket");
    return [options] { return measure::make_local_target(options); };
  }
  measure::HttpTargetOptions options;
  const std::string driver_name = driver.empty() ? "fathom" : driver;
  Result<measure::Driver> loaded = measure::load_driver(driver_name);
  if (!loaded.ok()) fail("{}", loaded.error().message);
  options.driver_name = driver_name;
  options.is_cancelled = interrupted;
  options.driver = std::move(loaded).value();
  options.key = api_key;
  options.model = served_model;
  options.pack_path = pack_path();
  options.log_path = log;
  options.command = server_command;
  if (target == "serve") {
    options.command = "exec" + shell_words({own_path(), "serve", "--port"}) +
                      " {port} --max-queue 1024 --parallel " + fmt::format("{}", parallel) +
                      shell_words(model.arguments());
  } else {
    options.address = target;
  }
  return [options] { return std::make_unique<measure::HttpTarget>(options); };
}

TargetFactory BenchTarget::users_of(const std::string& address) const {
  BenchTarget user = *this;
  user.target = address;
  user.server_command.clear();
  return user.factory();
}

Tokenizer BenchTarget::open_tokenizer() const {
  ModelOptions options;
  options.model = !tokenizer.empty() ? tokenizer : !pack.empty() ? pack : model.model;
  return cli::open_tokenizer(options);
}

std::string BenchTarget::pack_path() const {
  if (!pack.empty()) return pack;
  if (is_url(target)) return "";
  if (!model.model.empty()) return model.model;
  const char* chosen = std::getenv("FATHOM_MODEL");
  return chosen == nullptr ? "" : chosen;
}

std::string BenchTarget::identity() const {
  std::string text = target;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format(", {} {}", name, value);
  };
  add("driver", driver);
  add("command", server_command);
  add("model", served_model);
  add("pack", pack);
  add("tokenizer", tokenizer);
  return text + shell_words(model.arguments());
}

measure::SourceText load_source(const std::string& name, const fathom_tokenizer* tokenizer,
                                int64_t needed_tokens) {
  Result<measure::SourceText> source = measure::read_source(name, tokenizer);
  if (!source.ok()) fail("{}", source.error().message);
  if (source->source.tokens < needed_tokens)
    fail("source {}: expected at least {} tokens, found {}; shorter steps or --scale would fit", name,
         needed_tokens, source->source.tokens);
  return std::move(source).value();
}

int64_t Scale::of(int64_t tokens) const {
  return std::max<int64_t>(
      2, static_cast<int64_t>(std::floor(static_cast<double>(tokens) * parse_scale(text) + 1e-9)));
}

std::vector<int64_t> parse_lengths(const std::string& list) {
  std::vector<int64_t> lengths;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) lengths.push_back(parse_tokens(std::string_view(list).substr(begin, end - begin)));
    if (end > begin && lengths.back() < 2)
      fail_usage("lengths: expected at least 2 tokens, found {}", lengths.back());
    begin = end + 1;
  }
  return lengths;
}

}  // namespace fathom::cli
