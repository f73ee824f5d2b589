// Many users of one server at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/source_text.h"
#include "measure/target.h"

namespace fathom::measure {

struct ServeLoadSettings {
  int32_t users = 8;
  int32_t requests_per_user = 4;
  double requests_per_s =
      0;  // of all users together, Poisson; 0: everybody asks again as soon as he has his answer
  int64_t prompt_tokens = 512, generated_tokens = 128;
  uint64_t seed = 42;         // of arrivals, and of where prompts begin in the source
  std::chrono::seconds time_limit{3600};
};

/// When each user's requests are due, seconds from the beginning, ascending: [users][requests]. Gaps are
/// exponential with mean users / requests_per_s; all 0 for a rate of 0. Depends on the settings only.
std::vector<std::vector<double>> arrivals_of(const ServeLoadSettings& settings);

/// One request as its user saw it. Times in seconds since the beginning.
struct ServedRequest {
  int32_t user = 0;
  double due_s = 0, sent_s = 0;
  std::vector<double> token_s;  // [tokens], or pieces of text where the target tells no ids
  int64_t tokens = 0;
  std::string error;
};

struct ServeLoadFigures {
  int64_t requests = 0, failed = 0;
  int64_t output_tokens = 0;
  double duration_s = 0;              // first due -> last token
  double output_tokens_per_s = 0, requests_per_s = 0;
  // From the moment a request was due: a user who still waits for his last answer does not hide a slow server.
  double first_token_p50_s = 0, first_token_p90_s = 0, first_token_p99_s = 0;
  double gap_p50_ms = 0, gap_p90_ms = 0, gap_p99_ms = 0, gap_max_ms = 0;  // between tokens, over all
  /// Jain's index over the users' mean generation rates: (sum x)^2 / (n sum x^2); 1: all alike, 1/n: one gets all.
  double fairness = 0;
  double slowest_user_tokens_per_s = 0, fastest_user_tokens_per_s = 0;
  std::string first_error;
};

/// Requests that failed are counted and take part in nothing else. NaN where nothing succeeded.
ServeLoadFigures serve_load_figures(const std::vector<ServedRequest>& requests);

/// One thread and one Target a user; `make_user` gives targets for a server that runs already. A user's next
/// request waits for his last one, and is then late.
std::vector<ServedRequest> run_serve_load(const std::function<std::unique_ptr<Target>()>& make_user,
                                          const SourceText& source, const ServeLoadSettings& settings);

}  // namespace fathom::measure
