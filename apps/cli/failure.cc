#include "failure.h"

namespace fathom::cli {

void require(fathom_status status) {
  if (status == FATHOM_OK) return;
  if (status == FATHOM_CANCELLED) throw Failure{kExitInterrupted, "interrupted"};
  const std::string message = fathom_last_error();
  throw Failure{kExitFailure, message.empty() ? fathom_status_name(status) : message};
}

}  // namespace fathom::cli
