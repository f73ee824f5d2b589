// A generator that plays a script instead of running a model, for tests of everything that stands above one.
//
// It keeps the contract of Generator: the same checks, order of calls, endings and counts, so the server cannot
// tell the difference. The script is JSON, described in docs/testing_serve.md.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/generator.h"
#include "text/tokenizer.h"

namespace fathom {

/// `tokenizer` must live longer. kInvalidArgument names what is wrong in the script.
Result<std::unique_ptr<Generator>> make_scripted_generator(const std::string& script_json,
                                                           const Tokenizer& tokenizer);

}  // namespace fathom
