#pragma once

#include <filesystem>
#include <memory>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// Opens one safetensors file, or a directory that holds model.safetensors or
// shards named by model.safetensors.index.json (the index wins; no other file
// is read). Symbolic links are followed. Every header is parsed and checked,
// no tensor data is read. Descriptors stay open as long as the reader lives.
//
// map() gives views into one shared mapping of the file; who maps a file that
// somebody else may truncate meanwhile risks a bus error, read() reports it.
//
// kNotFound: no such path, no weights in it, a missing shard. kCorruptData:
// see header.h and index.h; a shard that disagrees with the index.
// kUnsupported: an unknown dtype, or a directory with weights only in other
// containers.
[[nodiscard]] std::unique_ptr<CheckpointReader> open_safetensors(
    const std::filesystem::path& path);

}  // namespace nibble::container
