// Tables that others have published, as result files that come with the program.
#pragma once

#include <span>

#include "base/embedded.h"

namespace fathom::measure {

/// `name` is "m5-ultra-ds4-q2.json", `bytes` a result of kind "published" (docs/formats/bench_result.md).
using PublishedFile = EmbeddedFile;

/// In the order of their names.
std::span<const PublishedFile> published_results();

}  // namespace fathom::measure
