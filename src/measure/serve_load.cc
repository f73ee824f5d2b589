#include "measure/serve_load.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "measure/statistics.h"

namespace fathom::measure {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Uniform in (0, 1], the same on every machine; the library's distributions are not.
double uniform(std::mt19937_64& random) { return (static_cast<double>(random() >> 11) + 1) * 0x1p-53; }

GenerateRequest request_of(const TargetInfo& info, const SourceText& source, const ServeLoadSettings& settings,
                           std::mt19937_64& random) {
  // Behind the first id, which is BOS: every prompt gets that.
  const int64_t places = std::max<int64_t>(1, source.source.tokens - settings.prompt_tokens);
  const auto begin = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(places));
  const int64_t end = begin + settings.prompt_tokens - 1;
  GenerateRequest request;
  request.max_tokens = static_cast<int32_t>(settings.generated_tokens);
  request.time_limit = request.silence_limit = settings.time_limit;
  if (info.takes_ids && info.gives_ids)
    request.prompt_ids.assign(source.ids.begin() + begin, source.ids.begin() + end);
  else
    request.prompt_text = source.text_between(begin, end);
  if (!request.prompt_ids.empty()) request.prompt_ids.insert(request.prompt_ids.begin(), source.ids.front());
  return request;
}

class User {
 public:
  User(int32_t number, const SourceText& source, const ServeLoadSettings& settings, std::vector<double> due_s)
      : number_(number), source_(source), settings_(settings), due_s_(std::move(due_s)) {}

  void run(Target& target, int64_t begin_ns) {
    const Result<TargetInfo> info = target.start();
    std::mt19937_64 random(settings_.seed * 1'000'003 + static_cast<uint64_t>(number_));
    const auto seconds = [&](int64_t ns) { return static_cast<double>(ns - begin_ns) * 1e-9; };
    for (const double due_s : due_s_) {
      ServedRequest& served = served_.emplace_back();
      served.user = number_;
      if (!info.ok()) {
        served.error = info.error().message;
        continue;
      }
      const GenerateRequest request = request_of(*info, source_, settings_, random);
      const double wait_s = due_s - seconds(monotonic_ns());
      if (wait_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait_s));
      const Generation seen = target.generate(request);
      served.sent_s = seconds(seen.sent_ns);
      // Without a rate a request is due when the one before has ended.
      served.due_s = settings_.requests_per_s > 0 ? due_s : served.sent_s;
      served.error = seen.error;
      for (const int64_t token_ns : seen.token_ns) served.token_s.push_back(seconds(token_ns));
      const auto arrived = static_cast<int64_t>(seen.token_ns.size());
      served.tokens = seen.ids.empty() ? seen.claimed_output_tokens.value_or(arrived) : arrived;
      if (served.error.empty() && (served.token_s.empty() || served.tokens != request.max_tokens))
        served.error = fmt::format("expected {} tokens, found {}", request.max_tokens, served.tokens);
    }
    target.stop();
  }

  const std::vector<ServedRequest>& served() const { return served_; }

 private:
  int32_t number_;
  const SourceText& source_;
  const ServeLoadSettings& settings_;
  std::vector<double> due_s_;
  std::vector<ServedRequest> served_;
};

/// Tokens a second while tokens came, a user.
std::vector<double> rates_of(const std::map<int32_t, std::pair<int64_t, double>>& users) {
  std::vector<double> rates;
  for (const auto& [user, sums] : users)
    if (sums.second > 0) rates.push_back(static_cast<double>(sums.first) / sums.second);
  return rates;
}

void fill_fairness(const std::vector<double>& rates, ServeLoadFigures& figures) {
  double sum = 0, squares = 0;
  for (const double rate : rates) {
    sum += rate;
    squares += rate * rate;
  }
  figures.fairness = rates.empty() ? kNaN : sum * sum / (static_cast<double>(rates.size()) * squares);
  figures.slowest_user_tokens_per_s = rates.empty() ? kNaN : *std::min_element(rates.begin(), rates.end());
  figures.fastest_user_tokens_per_s = rates.empty() ? kNaN : *std::max_element(rates.begin(), rates.end());
}

}  // namespace

std::vector<std::vector<double>> arrivals_of(const ServeLoadSettings& settings) {
  std::vector<std::vector<double>> arrivals(static_cast<size_t>(settings.users));
  std::mt19937_64 random(settings.seed);
  for (std::vector<double>& user : arrivals) {
    double due_s = 0;
    for (int32_t request = 0; request < settings.requests_per_user; ++request) {
      if (settings.requests_per_s > 0)
        due_s -= std::log(uniform(random)) * settings.users / settings.requests_per_s;
      user.push_back(due_s);
    }
  }
  return arrivals;
}

ServeLoadFigures serve_load_figures(const std::vector<ServedRequest>& requests) {
  ServeLoadFigures figures;
  std::vector<double> first_tokens_s, gaps_ms;
  std::map<int32_t, std::pair<int64_t, double>> users;  // tokens after the first, and seconds they took
  double begin_s = std::numeric_limits<double>::infinity(), end_s = 0;
  for (const ServedRequest& request : requests) {
    ++figures.requests;
    if (!request.error.empty()) {
      ++figures.failed;
      if (figures.first_error.empty()) figures.first_error = request.error;
      continue;
    }
    const std::vector<double>& tokens = request.token_s;
    figures.output_tokens += request.tokens;
    first_tokens_s.push_back(tokens.front() - request.due_s);
    for (size_t token = 1; token < tokens.size(); ++token)
      gaps_ms.push_back((tokens[token] - tokens[token - 1]) * 1e3);
    users[request.user].first += request.tokens - 1;
    users[request.user].second += tokens.back() - tokens.front();
    begin_s = std::min(begin_s, request.due_s);
    end_s = std::max(end_s, tokens.back());
  }
  const auto succeeded = static_cast<double>(figures.requests - figures.failed);
  figures.duration_s = succeeded > 0 ? end_s - begin_s : kNaN;
  figures.output_tokens_per_s = static_cast<double>(figures.output_tokens) / figures.duration_s;
  figures.requests_per_s = succeeded / figures.duration_s;
  figures.first_token_p50_s = percentile(first_tokens_s, 0.5);
  figures.first_token_p90_s = percentile(first_tokens_s, 0.9);
  figures.first_token_p99_s = percentile(first_tokens_s, 0.99);
  figures.gap_p50_ms = percentile(gaps_ms, 0.5);
  figures.gap_p90_ms = percentile(gaps_ms, 0.9);
  figures.gap_p99_ms = percentile(gaps_ms, 0.99);
  figures.gap_max_ms = gaps_ms.empty() ? kNaN : *std::max_element(gaps_ms.begin(), gaps_ms.end());
  fill_fairness(rates_of(users), figures);
  return figures;
}

std::vector<ServedRequest> run_serve_load(const std::function<std::unique_ptr<Target>()>& make_user,
                                          const SourceText& source, const ServeLoadSettings& settings) {
  const std::vector<std::vector<double>> arrivals = arrivals_of(settings);
  std::vector<User> users;
  std::vector<std::unique_ptr<Target>> targets;
  for (int32_t number = 0; number < settings.users; ++number) {
    users.emplace_back(number, source, settings, arrivals[static_cast<size_t>(number)]);
    targets.push_back(make_user());
  }
  std::vector<std::thread> threads;
  const int64_t begin_ns = monotonic_ns();
  for (size_t number = 0; number < users.size(); ++number)
    threads.emplace_back([&, number] { users[number].run(*targets[number], begin_ns); });
  for (std::thread& thread : threads) thread.join();
  std::vector<ServedRequest> requests;
  for (const User& user : users) requests.insert(requests.end(), user.served().begin(), user.served().end());
  return requests;
}

}  // namespace fathom::measure
