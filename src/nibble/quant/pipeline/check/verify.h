#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nibble/base/progress.h"
#include "nibble/quant/pipeline/matrix/figures.h"

namespace nibble::quant {

// Error of one quantized layer: as the receipt states it, or computed anew
// from the source.
struct LayerError {
  std::string name;
  ErrorFigures figures;
};

struct VerifyReport {
  bool ok = true;
  std::vector<std::string> problems;  // one line each; empty when ok
  std::vector<std::string> notes;     // what could not be checked, and why
  std::vector<LayerError> layers;
};

// Reads every byte of a written directory and compares it with its receipt:
// checksums of tensors and files, types, missing and extra tensors and files,
// scales. With a source, decodes every layer, computes its error anew and
// compares it with the receipt's figure; the source's tensors must be those of
// the receipt. Without a receipt it checks what remains and says so in notes.
// What is wrong becomes a problem, not an exception; throws only when the
// directory cannot be opened as a checkpoint at all.
[[nodiscard]] VerifyReport verify(
    const std::filesystem::path& directory,
    const std::optional<std::filesystem::path>& source,
    ProgressSink& progress);

}  // namespace nibble::quant
