#pragma once

#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "nibble/base/progress.h"
#include "nibble/container/checkpoint.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/format.h"
#include "nibble/quant/pipeline/execute/execute.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// Throws kCheckFailed for the first number that is not of this kind.
void check_numbers(const container::CheckpointReader& reader,
                   const container::TensorInfo& tensor,
                   Format::Numbers numbers);

// Opens a directory that was written in a format (Plan::format), whose name
// tells an order of codes that its files do not.
[[nodiscard]] load::CheckpointDirectory open_written(
    const std::filesystem::path& directory, std::string_view format);

// The tensors as they are in a directory's files.
[[nodiscard]] const container::CheckpointReader& tensors_in_files(
    const load::CheckpointDirectory& directory);

// One of several equal parts of a work.
struct Part {
  std::size_t number = 0;  // from 0
  std::size_t of = 1;
};

// Reads everything back that was written to directory: headers against the
// plan, declarations by the format's own reader, and, of a part of the tensors,
// checksums and scales. Throws kCheckFailed for the first difference,
// kInterrupted when stop becomes true.
void check_output(const Plan& plan,
                  std::span<const ItemResult> results,
                  const std::filesystem::path& directory,
                  Part part,
                  ProgressSink& progress,
                  const std::atomic<bool>& stop);

}  // namespace nibble::quant
