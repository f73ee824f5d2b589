// Amounts as people write them, and as they read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::cli {

/// "96GB" (10^9), "80GiB" or "80G" (2^30), "512MiB", "1.5TB", "1000000". Throws Failure that says what is
/// accepted.
int64_t parse_bytes(std::string_view text);
/// "4096", "128K" (1024 each), "1M" (1024 K). Throws Failure.
int64_t parse_tokens(std::string_view text);
/// Token ids separated by white space or commas, or a JSON array. Throws Failure that names the wrong word.
std::vector<int32_t> parse_ids(std::string_view text);

/// "1.5 GiB"
std::string format_bytes(double bytes);
/// "41 s", "3 min 20 s", "2 h 5 min"
std::string format_seconds(double seconds);

}  // namespace fathom::cli
