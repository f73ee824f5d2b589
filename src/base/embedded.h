// Files that are part of the program; cmake/embed.cmake makes the functions that give them.
#pragma once

#include <span>
#include <string_view>

namespace fathom {

struct EmbeddedFile {
  std::string_view name;   // "novel.txt"
  std::string_view bytes;  // live as long as the program
};

}  // namespace fathom
