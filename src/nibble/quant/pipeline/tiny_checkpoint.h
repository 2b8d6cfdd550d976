#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/pipeline/quantize.h"
#include "nibble/tensor/tensor.h"

namespace nibble::quant {

// Small checkpoints for tests: written anew from a seed, complete with config
// and side files, so that each test can damage its own.
struct TinyOptions {
  std::string family = "llama";  // or "llama4"
  bool tied = false;
  bool wrapper = false;  // llama4: language_model. prefix and a vision tower
  DType dtype = DType::kBF16;
  std::size_t shards = 1;
  std::int64_t scale = 1;  // of every width: 16 makes 92 MB of llama4
  // Changes tensors before they are written; shapes and config are free too.
  std::function<void(std::map<std::string, Tensor>&, nlohmann::json& config)>
      change = {};
};

// Writes a checkpoint into directory (made if needed). Hidden 64, two layers,
// vocabulary 96; llama4: layer 1 has 3 experts.
void write_tiny(const std::filesystem::path& directory,
                const TinyOptions& options = {});

// A recipe's text with one rule for everything.
[[nodiscard]] std::string one_rule(const std::string& keys);

// quantize() without progress, stop or options but the output.
QuantizeReport quantize_to(const std::filesystem::path& source,
                           const std::string& recipe,
                           QuantizeOptions options);
QuantizeReport quantize_to(const std::filesystem::path& source,
                           const std::string& recipe,
                           const std::filesystem::path& output);

// Content of every file below directory by its relative name; of the receipt
// without what differs from run to run.
[[nodiscard]] std::map<std::string, std::string> contents_of(
    const std::filesystem::path& directory);

}  // namespace nibble::quant
