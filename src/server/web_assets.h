// Files of the chat page, part of the program. Without npm at build time there is one: a note that the page is missing.
#pragma once

#include <span>
#include <string_view>

namespace fathom {

struct WebAsset {
  std::string_view path;          // of the request: "/" or "/assets/index-1a2b3c4d.js"
  std::string_view content_type;  // with charset where there is one
  std::string_view bytes;         // lives as long as the program
  bool immutable;                 // the name changes with the content, so that browsers may keep it forever
};

/// Sorted by path; "/" is always there. Any thread.
std::span<const WebAsset> web_assets();

/// False if the program was built without the page.
bool web_page_built();

/// Value of the header content-security-policy, for every asset. Nothing inline, nothing from elsewhere, and HTML
/// that reaches the document must have come out of the sanitiser (its policy is called dompurify).
constexpr std::string_view kWebContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify";

}  // namespace fathom
