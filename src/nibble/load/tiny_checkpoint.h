#pragma once

// Small random checkpoints, written to a directory, for tests.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/model/config.h"
#include "nibble/tensor/view.h"

namespace nibble::load {

// The config and tensors (float32, each a small multiple of 1/64, so that F16
// and BF16 hold it exactly) of a checkpoint, to be changed before it is
// written.
class TinyCheckpoint {
 public:
  struct Weight {
    Shape shape;
    std::vector<float> values;
  };

  explicit TinyCheckpoint(const nlohmann::json& config);
  ~TinyCheckpoint();

  [[nodiscard]] nlohmann::json& config() { return *config_; }

  [[nodiscard]] std::map<std::string, Weight>& tensors() { return tensors_; }

  [[nodiscard]] Weight& at(const std::string& name) {
    return tensors_.at(name);
  }

  // Adds random values, or takes the place of a tensor of that name.
  void add(const std::string& name, const Shape& shape);

  // Writes it in files of so many tensors each (0 = all in one).
  void write(const std::filesystem::path& directory,
             DType dtype = DType::kBF16,
             std::size_t tensors_per_file = 0) const;

 private:
  void add_norm(const std::string& name, std::int64_t width);
  void add_linear(const std::string& module,
                  std::int64_t out,
                  std::int64_t in,
                  bool bias);
  void add_mlp(const model::ModelConfig& config,
               const std::string& module,
               std::int64_t width);
  void add_layer(const model::ModelConfig& config,
                 std::size_t layer,
                 const std::string& path);

  std::unique_ptr<nlohmann::json> config_;
  std::map<std::string, Weight> tensors_;
  std::mt19937 random_{42};
};

// A Llama with grouped heads, heads wider than hidden / heads, scaled rope.
[[nodiscard]] nlohmann::json tiny_llama();

// A Llama 4 with everything it can have, in few positions, two experts a
// token.
[[nodiscard]] nlohmann::json tiny_llama4();

}  // namespace nibble::load
