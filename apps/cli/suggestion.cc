#include "suggestion.h"

#include <algorithm>
#include <filesystem>

#include "failure.h"

namespace fathom::cli {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t at = 0; at <= b.size(); ++at) row[at] = at;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  // A third of the letters wrong is a typing error; more is another word.
  size_t nearest = word.size() / 3 + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance > nearest || (distance == nearest && !best.empty())) continue;
    nearest = distance;
    best = candidate;
  }
  return best.empty() ? "" : fmt::format(", did you mean {}?", best);
}

void require_exists(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(path, error)) return;
  if (error) fail("cannot look at {}: {}", path, error.message());
  fs::path whole = path;
  if (!whole.has_filename()) whole = whole.parent_path();
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error))
    fail("no such file or folder: {} ({} does not exist)", path, folder.string());
  std::vector<std::string> names;
  for (const auto& entry :
       fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error))
    names.push_back(entry.path().filename().string());
  fail("no such file or folder: {}{}", path, suggestion(whole.filename().string(), names));
}

}  // namespace fathom::cli
