// Data files that are part of the program: cmake/embed.cmake.
#pragma once

#include <span>
#include <string_view>

namespace fathom {

struct EmbeddedFile {
  std::string_view name, bytes;
};
/// src/measure/briefs/
std::span<const EmbeddedFile> embedded_briefs();

}  // namespace fathom
