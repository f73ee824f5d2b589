// Files of the measuring tools that are part of the program (cmake/embed.cmake).
#pragma once

#include "base/embedded.h"

namespace fathom {

std::span<const EmbeddedFile> measuring_texts();
std::span<const EmbeddedFile> bench_drivers();
std::span<const EmbeddedFile> published_result_files();
std::span<const EmbeddedFile> writing_briefs();
std::span<const EmbeddedFile> writing_judging();
/// One page, or none where the program is built without its pages.
std::span<const EmbeddedFile> report_pages();

}  // namespace fathom
