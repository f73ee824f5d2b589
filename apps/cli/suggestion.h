// "Did you mean": the nearest of the names that would have been right.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::cli {

/// ", did you mean NAME?" or "" if no candidate is near.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

/// Throws Failure that names the path, and an entry of its folder with a similar name, if nothing is there.
void require_exists(const std::string& path);

}  // namespace fathom::cli
