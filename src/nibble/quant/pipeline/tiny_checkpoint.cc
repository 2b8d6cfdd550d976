#include "nibble/quant/pipeline/tiny_checkpoint.h"

#include <atomic>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/index.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kExperts = 3;

struct Sizes {
  explicit Sizes(std::int64_t scale)
      : hidden(64 * scale),
        vocabulary(96 * scale),
        mlp(128 * scale),
        expert_mlp(160 * scale) {}

  std::int64_t hidden;
  std::int64_t vocabulary;
  std::int64_t mlp;
  std::int64_t expert_mlp;
};

// Tensors by name, filled from one seeded generator in the order of adding.
class Maker {
 public:
  explicit Maker(DType dtype) : dtype_(dtype) {}

  void add(const std::string& name, const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (float& value : values) {
      // Sums of uniform numbers: the same on every standard library.
      value = 0.02F * (uniform() + uniform() + uniform());
    }
    Tensor tensor(dtype_, shape);
    convert_from_float(values, tensor.view());
    tensors.emplace(name, std::move(tensor));
  }

  std::map<std::string, Tensor> tensors;

 private:
  float uniform() {
    return static_cast<float>(generator_()) / 2147483648.0F - 1.0F;
  }

  std::mt19937 generator_{7};
  DType dtype_;
};

void add_attention(Maker& maker,
                   const std::string& layer,
                   std::int64_t hidden) {
  maker.add(layer + "self_attn.q_proj.weight", {hidden, hidden});
  maker.add(layer + "self_attn.k_proj.weight", {hidden / 2, hidden});
  maker.add(layer + "self_attn.v_proj.weight", {hidden / 2, hidden});
  maker.add(layer + "self_attn.o_proj.weight", {hidden, hidden});
  maker.add(layer + "input_layernorm.weight", {hidden});
  maker.add(layer + "post_attention_layernorm.weight", {hidden});
}

void add_mlp(Maker& maker,
             const std::string& mlp,
             std::int64_t hidden,
             std::int64_t width) {
  maker.add(mlp + "gate_proj.weight", {width, hidden});
  maker.add(mlp + "up_proj.weight", {width, hidden});
  maker.add(mlp + "down_proj.weight", {hidden, width});
}

json llama_config(const Sizes& sizes) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", sizes.hidden},
          {"intermediate_size", sizes.mlp},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"vocab_size", sizes.vocabulary}};
}

json llama4_config(const Sizes& sizes) {
  json config = llama_config(sizes);
  config["architectures"] = {"Llama4ForCausalLM"};
  config["model_type"] = "llama4_text";
  config["head_dim"] = sizes.hidden / 4;
  config["intermediate_size"] = sizes.expert_mlp;
  config["intermediate_size_mlp"] = sizes.mlp;
  config["num_local_experts"] = kExperts;
  config["num_experts_per_tok"] = 1;
  config["interleave_moe_layer_step"] = 2;
  return config;
}

void add_decoder(Maker& maker,
                 const std::string& prefix,
                 const Sizes& sizes,
                 bool llama4) {
  maker.add(prefix + "model.embed_tokens.weight",
            {sizes.vocabulary, sizes.hidden});
  maker.add(prefix + "model.norm.weight", {sizes.hidden});
  maker.add(prefix + "lm_head.weight", {sizes.vocabulary, sizes.hidden});
  for (int i = 0; i < 2; ++i) {
    const std::string layer =
        prefix + "model.layers." + std::to_string(i) + ".";
    add_attention(maker, layer, sizes.hidden);
    if (!llama4) {
      add_mlp(maker, layer + "mlp.", sizes.hidden, sizes.mlp);
    } else if (i == 0) {
      add_mlp(maker, layer + "feed_forward.", sizes.hidden, sizes.mlp);
    } else {
      const std::string forward = layer + "feed_forward.";
      maker.add(forward + "router.weight", {kExperts, sizes.hidden});
      maker.add(forward + "experts.gate_up_proj",
                {kExperts, sizes.hidden, 2 * sizes.expert_mlp});
      maker.add(forward + "experts.down_proj",
                {kExperts, sizes.expert_mlp, sizes.hidden});
      add_mlp(
          maker, forward + "shared_expert.", sizes.hidden, sizes.expert_mlp);
    }
  }
}

void write_shards(const fs::path& directory,
                  const std::map<std::string, Tensor>& tensors,
                  std::size_t shards) {
  std::vector<std::vector<container::NamedTensor>> parts(shards);
  std::size_t next = 0;
  for (const auto& [name, tensor] : tensors) {
    parts[next++ % shards].push_back({name, tensor.view()});
  }
  container::SafetensorsIndex index;
  for (std::size_t i = 0; i < shards; ++i) {
    const std::string file = container::safetensors_file_name(i, shards);
    container::write_safetensors(directory / file, parts[i]);
    for (const container::NamedTensor& tensor : parts[i]) {
      index.weight_map[tensor.name] = file;
    }
  }
  if (shards > 1) {
    write_file_atomically(directory / container::kSafetensorsIndexName,
                          container::serialize_safetensors_index(index));
  }
}

}  // namespace

void write_tiny(const fs::path& directory, const TinyOptions& options) {
  const bool llama4 = options.family == "llama4";
  const std::string prefix = options.wrapper ? "language_model." : "";
  Maker maker(options.dtype);
  const Sizes sizes(options.scale);
  add_decoder(maker, prefix, sizes, llama4);
  json config = llama4 ? llama4_config(sizes) : llama_config(sizes);
  if (options.tied) {
    maker.tensors.erase(prefix + "lm_head.weight");
    config["tie_word_embeddings"] = true;
  }
  if (options.wrapper) {
    maker.add("vision_model.encoder.layers.0.mlp.fc1.weight", {64, 32});
    maker.add("vision_model.class_embedding", {32});
    maker.add("multi_modal_projector.linear_1.weight", {64, 64});
    json text = std::move(config);
    text.erase("architectures");
    config = {{"architectures", {"Llama4ForConditionalGeneration"}},
              {"model_type", "llama4"},
              {"text_config", std::move(text)},
              {"vision_config", {{"hidden_size", 32}}}};
  }
  if (options.change) {
    options.change(maker.tensors, config);
  }
  fs::create_directories(directory / "extra");
  write_shards(directory, maker.tensors, options.shards);
  write_file_atomically(directory / "config.json", config.dump(2) + "\n");
  write_file_atomically(directory / "generation_config.json",
                        "{\"do_sample\": false, \"temperature\": 0.9}");
  write_file_atomically(directory / "LICENSE", std::string("a\0b\r\n", 5));
  write_file_atomically(directory / "extra" / "notes.txt", "kept\n");
}

std::string one_rule(const std::string& keys) {
  return R"({"version": 1, "rules": [{"match": "*", )" + keys + "}]}";
}

QuantizeReport quantize_to(const fs::path& source,
                           const std::string& recipe,
                           QuantizeOptions options) {
  const std::atomic<bool> stop{false};
  return quantize(load::open_checkpoint(source),
                  load_recipe(recipe),
                  options,
                  null_progress(),
                  stop);
}

QuantizeReport quantize_to(const fs::path& source,
                           const std::string& recipe,
                           const fs::path& output) {
  QuantizeOptions options;
  options.output = output;
  return quantize_to(source, recipe, std::move(options));
}

std::map<std::string, std::string> contents_of(const fs::path& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) {
      continue;
    }
    const std::string name =
        entry.path().lexically_relative(directory).generic_string();
    contents[name] = read_text_file(entry.path());
  }
  const auto receipt = contents.find("nibble.json");
  if (receipt != contents.end()) {
    json content = json::parse(receipt->second);
    content.erase("seconds");
    content.erase("peak_rss_bytes");
    content["source"].erase("path");
    content.erase("key");  // knows the times of the source's files
    receipt->second = content.dump(1);
  }
  return contents;
}

}  // namespace nibble::quant
