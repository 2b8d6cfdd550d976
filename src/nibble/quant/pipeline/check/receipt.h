#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/base/function_ref.h"
#include "nibble/quant/pipeline/execute/execute.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// A file that stands beside the tensors.
struct CopiedFile {
  std::string name;  // relative to the directory, with '/'
  std::uint64_t bytes = 0;
  std::string checksum;
};

// What a run measured of itself; these alone differ from run to run.
struct RunFigures {
  double seconds = 0;
  std::uint64_t peak_rss_bytes = 0;
};

// Digest of a source: over every tensor in the order of names, its name,
// type, shape and the digests of its matrices (docs/receipt.md). The same
// tensors in other files give the same digest.
[[nodiscard]] std::string source_hash(const Plan& plan,
                                      const load::CheckpointDirectory& source,
                                      std::span<const ItemResult> results);

// The text of nibble.json (docs/receipt.md): every source tensor with its fate,
// checksums and errors, one a line, made one after the other so that a model
// of very many tensors needs no tree of them all. results[i] belongs to
// items_of(plan)[i].
[[nodiscard]] std::string receipt_text(const Plan& plan,
                                       const load::CheckpointDirectory& source,
                                       std::span<const ItemResult> results,
                                       std::span<const CopiedFile> files,
                                       FunctionRef<RunFigures()> figures);

// The receipt of a written directory. kNotFound when it has none,
// kCorruptData when it is no JSON object.
[[nodiscard]] nlohmann::json read_receipt(
    const std::filesystem::path& directory);

}  // namespace nibble::quant
