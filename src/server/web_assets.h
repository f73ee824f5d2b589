// The files of the chat page, which the build puts into the program.
#pragma once

#include <span>
#include <string_view>

namespace fathom {

struct WebAsset {
  std::string_view path;          // "/index.html", "/assets/index-1a2b3c.js"
  std::string_view content_type;
  std::string_view bytes;
  bool immutable = false;         // its name changes with its content
};

/// Empty when the page was not built. Lives as long as the program.
std::span<const WebAsset> web_assets();

/// The page loads nothing from elsewhere and runs no script but its own.
inline constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace fathom
