#include "measure/target.h"

#include <fmt/format.h>

#include <ctime>

namespace fathom::measure {
namespace {

constexpr const char* kVariantNames[] = {"session",        "http_ids_exact", "http_ids_reprocessed",
                                         "http_ids_cold", "http_text",      "mixed"};

}  // namespace

int64_t monotonic_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string utc_now() {
  const time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

const char* variant_name(Variant variant) { return kVariantNames[static_cast<size_t>(variant)]; }

std::optional<Variant> variant_of_name(const std::string& name) {
  for (size_t variant = 0; variant < std::size(kVariantNames); ++variant)
    if (name == kVariantNames[variant]) return static_cast<Variant>(variant);
  return std::nullopt;
}

std::vector<std::string> differences(const TargetInfo& kept, const TargetInfo& found) {
  std::vector<std::string> result;
  const auto compare = [&](const char* name, const std::string& there, const std::string& here) {
    if (there != here) result.push_back(fmt::format("{}: \"{}\" there, \"{}\" now", name, there, here));
  };
  compare("engine", kept.engine, found.engine);
  compare("driver", kept.driver, found.driver);
  compare("model", kept.model, found.model);
  compare("pack", kept.pack_path, found.pack_path);
  compare("details", kept.details, found.details);
  return result;
}

}  // namespace fathom::measure
