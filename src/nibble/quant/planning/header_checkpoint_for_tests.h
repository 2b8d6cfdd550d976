#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/header.h"
#include "nibble/container/safetensors/index.h"
#include "nibble/container/safetensors/writer.h"

namespace nibble::quant {

// A checkpoint of headers: files as long as they say, with holes for data, so
// that models of any size fit on any disk.
class HeaderCheckpoint {
 public:
  void add(const std::string& name, std::vector<std::int64_t> dims) {
    container::TensorInfo tensor;
    tensor.name = name;
    tensor.dtype = DType::kBF16;
    tensor.bytes = 2;
    tensor.shape = Shape(std::span<const std::int64_t>(dims));
    for (const std::int64_t dim : dims) {
      tensor.bytes *= static_cast<std::uint64_t>(dim);
    }
    constexpr std::uint64_t kShardBytes = 5'000'000'000;
    if (shards_.empty() || bytes_ + tensor.bytes > kShardBytes) {
      shards_.emplace_back();
      bytes_ = 0;
    }
    bytes_ += tensor.bytes;
    shards_.back().push_back(std::move(tensor));
  }

  void write(const std::filesystem::path& directory,
             const nlohmann::json& config) {
    std::vector<container::OutputFile> files;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      files.push_back(
          {container::safetensors_file_name(i, shards_.size()), shards_[i]});
      container::sort_like_reference(files.back().tensors);
      const std::string header =
          container::serialize_safetensors_header(files.back().tensors, {});
      std::uint64_t bytes = header.size();
      for (const container::TensorInfo& tensor : files.back().tensors) {
        bytes += tensor.bytes;
      }
      const std::filesystem::path path = directory / files.back().name;
      File::create(path).write(0, std::as_bytes(std::span(header)));
      std::filesystem::resize_file(path, bytes);
    }
    container::write_safetensors_index(directory, files);
    write_file_atomically(directory / "config.json", config.dump());
  }

 private:
  std::vector<std::vector<container::TensorInfo>> shards_;
  std::uint64_t bytes_ = 0;  // of the last shard
};

enum class ExpertForm { kStacked, kSeparate };

// The headers of a model of Llama 4 Maverick's sizes: 400 billion parameters,
// 48 layers, 128 experts in every second one; `more` small vision tensors.
inline void write_maverick_headers(const std::filesystem::path& directory,
                                   ExpertForm form,
                                   int more = 0) {
  constexpr std::int64_t kHidden = 5120;
  constexpr std::int64_t kExpert = 8192;
  constexpr std::int64_t kMlp = 16384;
  constexpr std::int64_t kVocabulary = 202048;
  constexpr std::int64_t kExperts = 128;
  constexpr int kLayers = 48;
  HeaderCheckpoint made;
  const std::string top = "language_model.model.";
  const auto mlp = [&](const std::string& at, std::int64_t width) {
    made.add(at + "gate_proj.weight", {width, kHidden});
    made.add(at + "up_proj.weight", {width, kHidden});
    made.add(at + "down_proj.weight", {kHidden, width});
  };
  made.add(top + "embed_tokens.weight", {kVocabulary, kHidden});
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string at = top + "layers." + std::to_string(layer) + ".";
    made.add(at + "input_layernorm.weight", {kHidden});
    made.add(at + "post_attention_layernorm.weight", {kHidden});
    made.add(at + "self_attn.q_proj.weight", {kHidden, kHidden});
    made.add(at + "self_attn.k_proj.weight", {1024, kHidden});
    made.add(at + "self_attn.v_proj.weight", {1024, kHidden});
    made.add(at + "self_attn.o_proj.weight", {kHidden, kHidden});
    const std::string block = at + "feed_forward.";
    if (layer % 2 == 0) {
      mlp(block, kMlp);
      continue;
    }
    made.add(block + "router.weight", {kExperts, kHidden});
    mlp(block + "shared_expert.", kExpert);
    if (form == ExpertForm::kStacked) {
      made.add(block + "experts.gate_up_proj",
               {kExperts, kHidden, 2 * kExpert});
      made.add(block + "experts.down_proj", {kExperts, kExpert, kHidden});
    } else {
      for (int expert = 0; expert < kExperts; ++expert) {
        mlp(block + "experts." + std::to_string(expert) + ".", kExpert);
      }
    }
  }
  made.add(top + "norm.weight", {kHidden});
  made.add("language_model.lm_head.weight", {kVocabulary, kHidden});
  for (int i = 0; i < more; ++i) {
    made.add("vision_model.model.layers." + std::to_string(i) + ".fc1.weight",
             {64, 64});
  }
  made.write(directory,
             {{"architectures", {"Llama4ForConditionalGeneration"}},
              {"model_type", "llama4"},
              {"text_config",
               {{"hidden_size", kHidden},
                {"intermediate_size", kExpert},
                {"intermediate_size_mlp", kMlp},
                {"num_hidden_layers", kLayers},
                {"num_local_experts", kExperts},
                {"num_experts_per_tok", 1},
                {"interleave_moe_layer_step", 2},
                {"num_attention_heads", 40},
                {"num_key_value_heads", 8},
                {"head_dim", 128},
                {"vocab_size", kVocabulary},
                {"use_qk_norm", false},
                {"rope_theta", 500000.0},
                {"max_position_embeddings", 1048576}}}});
}

}  // namespace nibble::quant
