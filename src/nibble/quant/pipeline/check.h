#pragma once

#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "nibble/base/progress.h"
#include "nibble/container/checkpoint.h"
#include "nibble/quant/pipeline/execute.h"
#include "nibble/quant/pipeline/plan.h"

namespace nibble::quant {

// Digest of a tensor's bytes as they stand in its file.
[[nodiscard]] std::string checksum_of(const container::CheckpointReader& reader,
                                      const container::TensorInfo& tensor);

// Digest of a tensor's bytes as a file that is not complete yet holds them.
[[nodiscard]] std::string checksum_of(const container::CheckpointWriter& writer,
                                      std::string_view name,
                                      std::uint64_t bytes);

// Throws kCheckFailed unless every element is a finite scale above zero (F32,
// F16, BF16) or, for F8_E4M3, a code that is no NaN; other types pass. For
// outputs of quantized layers, whose float tensors are all scales.
void check_values(const container::CheckpointReader& reader,
                  const container::TensorInfo& tensor);

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
