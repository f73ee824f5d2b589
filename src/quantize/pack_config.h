// The config.json of an output pack.
#pragma once

#include <string>

#include "model/config.h"

namespace fathom {

/// Nested text_config, as the release has it; config_from_json() reads it back to the same ModelConfig.
/// `with_quantization` adds the quantization_config of official safetensors. Keys are sorted.
std::string config_to_json(const ModelConfig& config, bool with_quantization);

}  // namespace fathom
