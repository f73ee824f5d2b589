// The program without the page of reports.
#include "base/embedded.h"

namespace fathom {

std::span<const EmbeddedFile> report_pages() { return {}; }

}  // namespace fathom
