#include <cmath>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "fuzz_entry.h"
#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/base/files/json.h"
#include "nibble/model/config.h"
#include "nibble/model/family.h"
#include "nibble/model/rope.h"
#include "nibble/model/transformer.h"

namespace {

using namespace nibble;         // NOLINT: a program, not a header
using namespace nibble::model;  // NOLINT

// What every accepted config promises to the code that allocates by it.
void check_config(const ModelConfig& config) {
  fuzz_require(config.hidden > 0 && config.vocabulary > 0);
  fuzz_require(config.kv_heads > 0 && config.heads % config.kv_heads == 0);
  fuzz_require(config.head_dim > 0 && config.head_dim % 2 == 0);
  fuzz_require(config.max_positions > 0);
  fuzz_require(!config.layers.empty() && config.layers.size() <= 2048);
  for (const LayerConfig& layer : config.layers) {
    fuzz_require(layer.attention_chunk >= 0);
    fuzz_require(layer.experts
                     ? config.experts > 0 && config.expert_intermediate > 0 &&
                           config.experts_per_token <= config.experts
                     : layer.intermediate > 0);
  }
  for (const float frequency : rope_frequencies(config)) {
    fuzz_require(std::isfinite(frequency) && frequency >= 0);
  }
  // Empty slots alone; the largest models would only slow the fuzzer down.
  if (config.layers.size() * static_cast<std::size_t>(config.experts + 1) <
      1000) {
    std::size_t slots = 0;
    Transformer(config, backend::cpu_backend())
        .visit_linears([&](LinearSlot& slot) {
          fuzz_require(!slot.path.empty() && slot.in > 0 && slot.out > 0);
          ++slots;
        });
    fuzz_require(slots > 7 * config.layers.size());
  }
}

void check_places(const nlohmann::json& config) {
  const Family& family = family_of(config);
  for (const std::string_view name :
       {"model.layers.3.mlp.up_proj.weight", "lm_head.weight", "wte", ""}) {
    (void)place_of(family, config, name, Shape{4, 4});
  }
  const TensorPlace place =
      place_of(family,
               config,
               "model.layers.0.feed_forward.experts.gate_up_proj",
               Shape{8, 256, 512});
  if (!place.stacked.empty()) {
    fuzz_require(place.stacked.size() == 2);
    fuzz_require(place.stacked[1].first_column == 256);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nlohmann::json config;
  try {
    config = parse_json(text, "config.json");
  } catch (const Error&) {
    return 0;
  }
  // Each on its own: what one refuses the other may still read.
  try {
    check_config(parse_config(config));
  } catch (const Error& error) {
    fuzz_require(error.code() == ErrorCode::kCorruptData ||
                 error.code() == ErrorCode::kUnsupported);
  }
  try {
    check_places(config);
  } catch (const Error& error) {
    fuzz_require(error.code() == ErrorCode::kCorruptData);
  }
  return 0;
}
