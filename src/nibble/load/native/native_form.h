#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/native/native_view.h"

namespace nibble::load {

// What a checkpoint was before as_native, for whoever accounts for it.
struct NativeForm {
  NativeLayout layout = NativeLayout::kMeta;
  std::int64_t ranks = 1;
  // params.json to be written; "" when one is among the side files, or none is
  // needed.
  std::string params_text;
  // "int4" or "fp8" when the ranks hold codes already, cut anew; else "".
  std::string packed;
  // The tensors in Hugging Face's form, or those of the files when packed.
  std::shared_ptr<const container::CheckpointReader> source;
  // Of tensor i of the ranks: the source tensors that it has parts of.
  std::vector<std::vector<std::size_t>> from;

  struct Dropped {
    std::size_t tensor = 0;  // of source
    std::string reason;
  };

  std::vector<Dropped> dropped;
};

// The checkpoint as its files in a native layout will hold it: reader has the
// tensors of every rank as "rank<r>/<native name>" (view_as_native).
// config_text is kept only where the directory has a config.json. kUnsupported
// for a checkpoint that is quantized, or holds something that the layout has no
// place for; else as view_as_native and params_from_config.
[[nodiscard]] CheckpointDirectory as_native(CheckpointDirectory source,
                                            NativeLayout layout,
                                            std::int64_t ranks);

// Drops what describes the files of the source alone: their checksums, and the
// text of a config.json that was derived.
void forget_old_files(CheckpointDirectory& source);

// Ranks to write when nobody says how many: those of the source's own files, or
// one.
[[nodiscard]] std::int64_t default_ranks(const CheckpointDirectory& source,
                                         NativeLayout layout);

}  // namespace nibble::load
