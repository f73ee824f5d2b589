// How far judges who read the same texts agree.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::measure {

struct JudgeAgreement {
  double alpha = 0;    // NaN where it is not defined
  int64_t texts = 0;   // with two values or more: the others say nothing about agreement
  int64_t values = 0;  // of those texts
};

/// Krippendorff's alpha for ordinal values (K. Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011): 1
/// is agreement, 0 what chance would give with these values, below 0 is worse than chance. Texts may have any
/// number of values, from different judges. Not defined without a text of two values, and where all of those are
/// the same: then nothing shows whether the judges tell texts apart.
JudgeAgreement ordinal_agreement(const std::vector<std::vector<int32_t>>& values_of_texts);

}  // namespace fathom::measure
