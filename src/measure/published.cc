#include "measure/published.h"

namespace fathom {

std::span<const EmbeddedFile> published_result_files();

namespace measure {

std::span<const PublishedFile> published_results() { return published_result_files(); }

}  // namespace measure
}  // namespace fathom
