// A made-up vocabulary with everything that text and chat need.
#pragma once

#include "base/result.h"
#include "model/config.h"
#include "quantize/pack_tokenizer.h"

namespace fathom {

/// Byte-level BPE of `config.vocab_size` tokens: BOS, EOS and pad as 0 to 2, the 256 bytes, tokens of one to
/// four letters with and without a space in front, and the added tokens of the release: at their own ids
/// where the vocabulary has its size, else at the end (then image_token_id moves there, where the config has
/// one). Sets the token ids of `config` that follow, and engram.compressed_vocab_size.
Result<VocabularyData> make_vocabulary(ModelConfig& config);

}  // namespace fathom
