#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/remap.h"
#include "nibble/load/native/meta_shards.h"

namespace nibble::load {

// A checkpoint in Meta's layout (or gpt-fast's file, which names its tensors
// alike) seen as a Hugging Face one: shards joined, wqkv and fc1 cut, q and k
// rows in half-split order (Llama 2 and 3), experts stacked input-major. Packed
// tensors of int4_mixed and fp8_mixed have no such form: they appear as they
// are, named "rank<r>/<native name>", their scales "rank<r>/scales/<name>".
// Entries that no model computes with are listed in metadata() with the reason.
// kUnsupported names a tensor that is none of these. docs/formats/meta.md.
[[nodiscard]] std::unique_ptr<container::CheckpointReader> view_as_hugging_face(
    const MetaShards& shards, const nlohmann::json& config);

}  // namespace nibble::load
