#include "measure/published.h"

#include "measure/embedded_files.h"

namespace fathom::measure {

std::span<const PublishedFile> published_results() { return published_result_files(); }

}  // namespace fathom::measure
