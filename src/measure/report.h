// A comparison as one HTML page that asks nobody for anything.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "measure/result.h"

namespace fathom::measure {

/// The page of web/report/ with the comparison of `results`, the first of which the others are compared with. An
/// error where there are none, or where the program was built without its pages.
Result<std::string> render_report(std::span<const BenchResult> results);

/// Puts the comparison into a page, in the place of its mark. Nothing in it can end the element it is in.
Result<std::string> render_report_with(std::string_view page, std::span<const BenchResult> results);

}  // namespace fathom::measure
