#pragma once

#include <cstdint>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/native/native_form.h"

namespace nibble::load {

// A directory of Meta's shards, dense or packed, cut for another number of
// ranks: every byte of codes and scales goes where its matrix element goes.
// Reader and native are as of as_native, with the tensors of the files as the
// source. INT4 and FP8 scales along a cut input axis stay those of the ranks
// that they were chosen in: where ranks are joined, an output has several, as
// (experts, scales, out); where one is cut, every part has a copy.
//
// kInvalidArgument for a number that heads, widths or groups do not divide
// into.
[[nodiscard]] CheckpointDirectory recut(CheckpointDirectory source,
                                        std::int64_t ranks);

}  // namespace nibble::load
