// Where outputs that should be equal are not.
#pragma once

#include <string>
#include <vector>

#include "measure/result.h"
#include "measure/source_text.h"
#include "measure/target.h"

namespace fathom::measure {

/// For every source and stage the first run that gave other ids than the first whole run; excluded runs do not
/// count. Only the first stage of a series at which two runs part is listed: after it their prompts differ.
std::vector<Divergence> divergences_of(const std::vector<Run>& runs);

/// Asks a started target how likely both tokens are at the place where the runs part. Returns what went wrong,
/// or "".
std::string fill_margin(Target& target, const SourceText& source, const std::vector<Run>& runs,
                        Divergence& divergence);

}  // namespace fathom::measure
