// Writes a Llama-shaped model of random weights as a Hugging Face directory,
// the same bytes for the same options on every machine. It speaks nonsense;
// it is for measuring speed and memory.
//   make_random_llama OUT [--layers 22 --hidden 2048 ...] [--seed 1]
//   make_random_llama OUT --maverick [--layers 2 --experts 16 ...]
// The default has 1.1 billion parameters (2.2 GB in bf16). --maverick takes
// the sizes of Llama-4-Maverick, where a layer of 128 experts has 32 GB;
// --written makes files that take less disk than they have bytes.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/parallel.h"
#include "nibble/container/safetensors/header.h"
#include "nibble/container/safetensors/index.h"
#include "nibble/tensor/convert.h"

namespace {

using nibble::DType;
using nibble::Shape;
using nibble::Tensor;
using nibble::container::TensorInfo;

struct Sizes {
  std::int64_t layers = 22;
  std::int64_t hidden = 2048;
  std::int64_t intermediate = 5632;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 4;
  std::int64_t vocabulary = 32000;
  std::int64_t positions = 4096;
  // Llama 4: experts in every second layer, stored as stacks of (in, out)
  // matrices; the other layers have a wider MLP. 0 = Llama.
  std::int64_t experts = 0;
  std::int64_t dense_intermediate = 0;
  // Bytes of each tensor that are written; the rest stays a hole of zeros.
  std::int64_t written = std::numeric_limits<std::int64_t>::max();
  std::uint64_t seed = 1;

  // Experts are in the odd layers.
  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    return experts > 0 && layer % 2 == 1;
  }
};

// Llama-4-Maverick, with as few layers as have all kinds of tensors.
Sizes maverick() {
  Sizes sizes;
  sizes.layers = 2;
  sizes.hidden = 5120;
  sizes.intermediate = 8192;
  sizes.heads = 40;
  sizes.kv_heads = 8;
  sizes.vocabulary = 202048;
  sizes.experts = 128;
  sizes.dense_intermediate = 16384;
  sizes.positions = 8192;
  return sizes;
}

TensorInfo info(std::string name, const Shape& shape) {
  const auto bytes = static_cast<std::uint64_t>(shape.elements()) * 2;
  return {std::move(name), DType::kBF16, shape, bytes, "", 0};
}

// What stands in the place of the MLP, by its name below the layer.
std::vector<TensorInfo> feed_forward(const Sizes& sizes, std::int64_t layer) {
  const std::int64_t hidden = sizes.hidden;
  const auto mlp = [&](const std::string& prefix, std::int64_t intermediate) {
    return std::vector{
        info(prefix + "gate_proj.weight", {intermediate, hidden}),
        info(prefix + "up_proj.weight", {intermediate, hidden}),
        info(prefix + "down_proj.weight", {hidden, intermediate})};
  };
  if (sizes.experts == 0) {
    return mlp("mlp.", sizes.intermediate);
  }
  if (!sizes.has_experts(layer)) {
    return mlp("feed_forward.", sizes.dense_intermediate);
  }
  std::vector<TensorInfo> tensors =
      mlp("feed_forward.shared_expert.", sizes.intermediate);
  tensors.push_back(
      info("feed_forward.router.weight", {sizes.experts, hidden}));
  tensors.push_back(info("feed_forward.experts.gate_up_proj",
                         {sizes.experts, hidden, 2 * sizes.intermediate}));
  tensors.push_back(info("feed_forward.experts.down_proj",
                         {sizes.experts, sizes.intermediate, hidden}));
  return tensors;
}

std::vector<TensorInfo> tensors_of(const Sizes& sizes) {
  const std::int64_t hidden = sizes.hidden;
  const std::int64_t kv = hidden / sizes.heads * sizes.kv_heads;
  std::vector<TensorInfo> tensors = {
      info("model.embed_tokens.weight", {sizes.vocabulary, hidden}),
      info("lm_head.weight", {sizes.vocabulary, hidden}),
      info("model.norm.weight", {hidden})};
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](const char* name, const Shape& shape) {
      tensors.push_back(info(prefix + name + ".weight", shape));
    };
    add("input_layernorm", {hidden});
    add("self_attn.q_proj", {hidden, hidden});
    add("self_attn.k_proj", {kv, hidden});
    add("self_attn.v_proj", {kv, hidden});
    add("self_attn.o_proj", {hidden, hidden});
    add("post_attention_layernorm", {hidden});
    for (TensorInfo& tensor : feed_forward(sizes, layer)) {
      tensor.name = prefix + tensor.name;
      tensors.push_back(std::move(tensor));
    }
  }
  nibble::container::sort_like_reference(tensors);
  return tensors;
}

std::uint64_t mixed(std::uint64_t value) {
  value ^= value >> 30;
  value *= 0xBF58476D1CE4E5B9u;
  value ^= value >> 27;
  value *= 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Near normal with standard deviation 0.02: the sum of four 16-bit numbers.
std::uint16_t random_weight(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = mixed(seed + index * 0x9E3779B97F4A7C15u);
  std::int64_t sum = -2 * 65535;
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::int64_t>((bits >> (16 * i)) & 0xFFFFu);
  }
  constexpr float kDeviationOfSum = 37837.0F;
  return nibble::float_to_bf16(static_cast<float>(sum) / kDeviationOfSum *
                               0.02F);
}

// The header and a length first, so that what is not written takes no disk.
class WeightsFile {
 public:
  WeightsFile(const std::filesystem::path& path,
              std::span<const TensorInfo> tensors)
      : file_(nibble::File::create(path)) {
    const std::string header = nibble::container::serialize_safetensors_header(
        tensors, {{"format", "pt"}});
    std::uint64_t offset = header.size();
    for (const TensorInfo& tensor : tensors) {
      offsets_[tensor.name] = offset;
      offset += tensor.bytes;
    }
    std::filesystem::resize_file(path, offset);
    file_.write(0, std::as_bytes(std::span(header)));
  }

  void write(std::string_view name,
             std::uint64_t offset,
             std::span<const std::byte> data) const {
    file_.write(offsets_.at(std::string(name)) + offset, data);
  }

  void sync() const { file_.sync(); }

 private:
  nibble::File file_;
  std::map<std::string, std::uint64_t> offsets_;
};

// The first elements of one tensor, a few megabytes at a time.
void write_tensor(const TensorInfo& tensor,
                  std::int64_t elements,
                  std::uint64_t seed,
                  const WeightsFile& writer) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;
  const bool norm = tensor.shape.rank() == 1;
  nibble::parallel_for(
      elements, kChunk, [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::uint16_t> values(
            static_cast<std::size_t>(end - begin));
        for (std::int64_t i = begin; i < end; ++i) {
          values[static_cast<std::size_t>(i - begin)] =
              norm ? nibble::float_to_bf16(1.0F)
                   : random_weight(seed, static_cast<std::uint64_t>(i));
        }
        writer.write(tensor.name,
                     static_cast<std::uint64_t>(begin) * 2,
                     std::as_bytes(std::span(values)));
      });
}

nlohmann::json config_of(const Sizes& sizes) {
  nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                           {"model_type", "llama"},
                           {"hidden_size", sizes.hidden},
                           {"intermediate_size", sizes.intermediate},
                           {"num_hidden_layers", sizes.layers},
                           {"num_attention_heads", sizes.heads},
                           {"num_key_value_heads", sizes.kv_heads},
                           {"vocab_size", sizes.vocabulary},
                           {"max_position_embeddings", sizes.positions},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 10000.0},
                           {"hidden_act", "silu"},
                           {"tie_word_embeddings", false},
                           {"torch_dtype", "bfloat16"},
                           {"bos_token_id", 1},
                           {"eos_token_id", 2}};
  if (sizes.experts > 0) {
    config.update({{"architectures", {"Llama4ForCausalLM"}},
                   {"model_type", "llama4_text"},
                   {"head_dim", sizes.hidden / sizes.heads},
                   {"intermediate_size_mlp", sizes.dense_intermediate},
                   {"num_local_experts", sizes.experts},
                   {"num_experts_per_tok", 1},
                   {"interleave_moe_layer_step", 2},
                   {"attention_chunk_size", 8192},
                   {"no_rope_layer_interval", 4},
                   {"use_qk_norm", false}});
  }
  return config;
}

// A byte-level BPE tokenizer without merges: one token a byte, then names
// that no text contains, up to the model's vocabulary.
nlohmann::json tokenizer_of(const Sizes& sizes) {
  nlohmann::json vocabulary = nlohmann::json::object();
  // Bytes that are not printable stand as characters from U+0100 on.
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) ||
                           (byte >= 161 && byte <= 172) || byte >= 174;
    const int point = printable ? byte : next++;
    std::string text;
    if (point < 0x80) {
      text = static_cast<char>(point);
    } else {
      text = {static_cast<char>(0xC0 | (point >> 6)),
              static_cast<char>(0x80 | (point & 0x3F))};
    }
    vocabulary[text] = byte;
  }
  for (std::int64_t id = 256; id < sizes.vocabulary; ++id) {
    vocabulary["<unused" + std::to_string(id) + ">"] = id;
  }
  const nlohmann::json bytes = {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", nullptr},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocabulary},
            {"merges", nlohmann::json::array()}}}};
}

void write_json(const std::filesystem::path& path, const nlohmann::json& json) {
  std::ofstream out(path);
  out << json.dump(2) << "\n";
  NIBBLE_CHECK(out.good(), kIo, "{}: cannot be written", path.string());
}

void write_weights(const std::filesystem::path& out,
                   const Sizes& sizes,
                   std::span<const TensorInfo> tensors) {
  WeightsFile writer(out / nibble::container::kSafetensorsSingleName, tensors);
  std::uint64_t seed = mixed(sizes.seed);
  for (const TensorInfo& tensor : tensors) {
    seed = mixed(seed + 1);
    write_tensor(tensor,
                 std::min(tensor.shape.elements(), sizes.written / 2),
                 seed,
                 writer);
  }
  writer.sync();
}

void make_model(const std::filesystem::path& out, const Sizes& sizes) {
  NIBBLE_CHECK(
      sizes.hidden % sizes.heads == 0 && sizes.heads % sizes.kv_heads == 0,
      kInvalidArgument,
      "hidden {}, heads {}, kv heads {}: expected multiples",
      sizes.hidden,
      sizes.heads,
      sizes.kv_heads);
  std::filesystem::create_directories(out);
  const std::vector<TensorInfo> tensors = tensors_of(sizes);
  write_weights(out, sizes, tensors);
  write_json(out / "config.json", config_of(sizes));
  write_json(out / "tokenizer.json", tokenizer_of(sizes));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes a Llama-shaped model of random weights");
  std::string out;
  // Known before the options that change it, whatever their order.
  const bool large =
      std::find(argv, argv + argc, std::string_view("--maverick")) !=
      argv + argc;
  Sizes sizes = large ? maverick() : Sizes{};
  app.add_flag("--maverick")
      ->description("sizes of Llama-4-Maverick, two layers");
  app.add_option("out", out, "directory to write")->required();
  const auto size = [&](const char* name, std::int64_t& value) {
    app.add_option(name, value)
        ->capture_default_str()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  };
  size("--layers", sizes.layers);
  size("--hidden", sizes.hidden);
  size("--intermediate", sizes.intermediate);
  size("--heads", sizes.heads);
  size("--kv-heads", sizes.kv_heads);
  size("--vocabulary", sizes.vocabulary);
  size("--positions", sizes.positions);
  if (large) {
    size("--experts", sizes.experts);
    size("--dense-intermediate", sizes.dense_intermediate);
  }
  app.add_option("--written", sizes.written)
      ->description("bytes of each tensor to write; the rest is a hole")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", sizes.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    make_model(out, sizes);
  } catch (const std::exception& error) {
    std::cerr << "make_random_llama: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
