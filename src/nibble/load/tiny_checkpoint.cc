#include "nibble/load/tiny_checkpoint.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/tensor/convert.h"
#include "nibble/tensor/tensor.h"

namespace nibble::load {

TinyCheckpoint::TinyCheckpoint(const nlohmann::json& config)
    : config_(std::make_unique<nlohmann::json>(config)) {
  const model::ModelConfig parsed = model::parse_config(config);
  const std::string model = parsed.name_prefix + "model.";
  add(model + "embed_tokens.weight", {parsed.vocabulary, parsed.hidden});
  for (std::size_t i = 0; i < parsed.layers.size(); ++i) {
    add_layer(parsed, i, model + "layers." + std::to_string(i) + ".");
  }
  add_norm(model + "norm.weight", parsed.hidden);
  if (!parsed.tied_head) {
    add(parsed.name_prefix + "lm_head.weight",
        {parsed.vocabulary, parsed.hidden});
  }
}

TinyCheckpoint::~TinyCheckpoint() = default;

void TinyCheckpoint::add(const std::string& name, const Shape& shape) {
  std::uniform_int_distribution<int> pick(-16, 16);
  Weight weight{shape, {}};
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    weight.values.push_back(static_cast<float>(pick(random_)) / 64);
  }
  tensors_[name] = std::move(weight);
}

void TinyCheckpoint::write(const std::filesystem::path& directory,
                           DType dtype,
                           std::size_t tensors_per_file) const {
  std::filesystem::create_directories(directory);
  write_file_atomically(directory / "config.json", config_->dump());
  std::vector<std::pair<std::string, Tensor>> stored;
  for (const auto& [name, weight] : tensors_) {
    Tensor tensor(dtype, weight.shape);
    convert_from_float(weight.values, tensor.view());
    stored.emplace_back(name, std::move(tensor));
  }
  const std::size_t step =
      tensors_per_file == 0 ? stored.size() : tensors_per_file;
  std::vector<container::OutputFile> files;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (i % step == 0) {
      files.push_back({tensors_per_file == 0
                           ? "model.safetensors"
                           : "part-" + std::to_string(i) + ".safetensors",
                       {}});
    }
    const auto& [name, tensor] = stored[i];
    files.back().tensors.push_back({name,
                                    tensor.dtype(),
                                    tensor.shape(),
                                    tensor.bytes(),
                                    "",
                                    files.size() - 1});
  }
  container::SafetensorsSetWriter writer(directory, files);
  for (const auto& [name, tensor] : stored) {
    writer.write(name, 0, std::as_const(tensor).view().byte_span());
  }
  writer.sync();
  if (tensors_per_file != 0) {
    container::write_safetensors_index(directory, files);
  }
}

void TinyCheckpoint::add_norm(const std::string& name, std::int64_t width) {
  add(name, {width});
  for (float& value : tensors_[name].values) {
    value += 1;
  }
}

void TinyCheckpoint::add_linear(const std::string& module,
                                std::int64_t out,
                                std::int64_t in,
                                bool bias) {
  add(module + ".weight", {out, in});
  if (bias) {
    add(module + ".bias", {out});
  }
}

void TinyCheckpoint::add_mlp(const model::ModelConfig& config,
                             const std::string& module,
                             std::int64_t width) {
  const bool bias = config.mlp_bias;
  add_linear(module + ".gate_proj", width, config.hidden, bias);
  add_linear(module + ".up_proj", width, config.hidden, bias);
  add_linear(module + ".down_proj", config.hidden, width, bias);
}

void TinyCheckpoint::add_layer(const model::ModelConfig& config,
                               std::size_t layer,
                               const std::string& path) {
  const std::int64_t q = config.heads * config.head_dim;
  const std::int64_t kv = config.kv_heads * config.head_dim;
  const bool bias = config.attention_bias;
  add_norm(path + "input_layernorm.weight", config.hidden);
  add_norm(path + "post_attention_layernorm.weight", config.hidden);
  add_linear(path + "self_attn.q_proj", q, config.hidden, bias);
  add_linear(path + "self_attn.k_proj", kv, config.hidden, bias);
  add_linear(path + "self_attn.v_proj", kv, config.hidden, bias);
  add_linear(path + "self_attn.o_proj", config.hidden, q, bias);
  const std::string mlp = path + config.mlp_module;
  if (!config.layers[layer].experts) {
    add_mlp(config, mlp, config.layers[layer].intermediate);
    return;
  }
  const std::int64_t width = config.expert_intermediate;
  add(mlp + ".router.weight", {config.experts, config.hidden});
  add_mlp(config, mlp + ".shared_expert", width);
  add(mlp + ".experts.gate_up_proj",
      {config.experts, config.hidden, 2 * width});
  add(mlp + ".experts.down_proj", {config.experts, width, config.hidden});
}

nlohmann::json tiny_llama() {
  return nlohmann::json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 50,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 1100, "rope_theta": 10000,
    "rope_scaling": {"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4,
      "original_max_position_embeddings": 64}})");
}

nlohmann::json tiny_llama4() {
  return nlohmann::json::parse(R"({
    "architectures": ["Llama4ForCausalLM"], "hidden_size": 24,
    "intermediate_size": 16, "intermediate_size_mlp": 40, "vocab_size": 50,
    "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 3,
    "num_experts_per_tok": 2, "interleave_moe_layer_step": 2,
    "attention_chunk_size": 10, "floor_scale": 7, "attn_scale": 0.3,
    "max_position_embeddings": 1100, "rope_theta": 10000})");
}

}  // namespace nibble::load
