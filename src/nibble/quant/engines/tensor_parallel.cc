#include "nibble/quant/engines/tensor_parallel.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "nibble/base/checked_math.h"

namespace nibble::quant {
namespace {

// More ranks than this share no layer in practice.
constexpr std::int64_t kMostDegrees = 128;
constexpr int kWordBits = 32;

enum class Cut { kNone, kRows, kColumns };

// How engines cut a layer, by the last part of its name.
Cut cut_of(const LayerFacts& layer) {
  constexpr std::array<std::string_view, 10> kByRows{"q_proj",
                                                     "k_proj",
                                                     "v_proj",
                                                     "gate_proj",
                                                     "up_proj",
                                                     "lm_head",
                                                     "w1",
                                                     "w3",
                                                     "qkv_proj",
                                                     "gate_up_proj"};
  constexpr std::array<std::string_view, 3> kByColumns{
      "o_proj", "down_proj", "w2"};
  const std::string_view last =
      layer.module.substr(layer.module.rfind('.') + 1);
  if (std::find(kByRows.begin(), kByRows.end(), last) != kByRows.end()) {
    return Cut::kRows;
  }
  if (std::find(kByColumns.begin(), kByColumns.end(), last) !=
      kByColumns.end()) {
    return Cut::kColumns;
  }
  return Cut::kNone;
}

// Columns of a quantized matrix at whose multiples it can be cut.
std::int64_t column_unit(const NumberSpec& weight) {
  switch (weight.grain) {
    case Grain::kGroup:
      return weight.group;
    case Grain::kBlock:
      return weight.block_columns;
    default:
      return weight.floating ? 1 : kWordBits / weight.bits;
  }
}

// Rows likewise: blocks, and zero points packed along the rows.
std::int64_t row_unit(const NumberSpec& weight) {
  if (weight.grain == Grain::kBlock) {
    return weight.block_rows;
  }
  return weight.symmetric ? 1 : kWordBits / weight.bits;
}

std::string_view unit_name(const NumberSpec& weight) {
  switch (weight.grain) {
    case Grain::kGroup:
      return "group";
    case Grain::kBlock:
      return "block";
    default:
      return "packed word";
  }
}

// Keys and values, where ranks beyond their heads share one.
bool repeats(const EngineCuts& engine,
             const ModelFacts& model,
             const LayerFacts& layer,
             std::int64_t degree) {
  return engine.repeats_kv_heads && model.kv_heads > 0 &&
         degree > model.kv_heads &&
         (layer.module.ends_with("k_proj") || layer.module.ends_with("v_proj"));
}

std::optional<RefusedDegree> refuse_rows(const EngineCuts& engine,
                                         const ModelFacts& model,
                                         const LayerFacts& layer,
                                         std::int64_t degree) {
  const std::int64_t unit =
      layer.spec != nullptr ? row_unit(layer.spec->weight) : 1;
  const std::int64_t parts =
      repeats(engine, model, layer, degree) ? model.kv_heads : degree;
  std::int64_t rows = layer.rows;
  if (layer.role == model::Role::kHead && engine.vocabulary_padding > 0) {
    rows =
        divide_up(rows, engine.vocabulary_padding) * engine.vocabulary_padding;
  }
  // A block that ends with the matrix may be short.
  if (rows % parts == 0 && (parts == 1 || rows / parts % unit == 0)) {
    return std::nullopt;
  }
  return RefusedDegree{
      degree,
      std::string(layer.module),
      unit == 1
          ? fmt::format("{} rows do not divide", rows)
          : fmt::format(
                "{} rows do not divide at whole {}s of {}",
                rows,
                layer.spec->weight.grain == Grain::kBlock ? "block" : "word",
                unit)};
}

std::optional<RefusedDegree> refuse_columns(const EngineCuts& engine,
                                            const LayerFacts& layer,
                                            std::int64_t degree) {
  const std::int64_t unit = layer.spec != nullptr && engine.whole_groups
                                ? column_unit(layer.spec->weight)
                                : 1;
  if (layer.columns % degree == 0 &&
      (degree == 1 || layer.columns / degree % unit == 0)) {
    return std::nullopt;
  }
  return RefusedDegree{
      degree,
      std::string(layer.module),
      unit == 1 ? fmt::format("{} columns do not divide", layer.columns)
                : fmt::format("{} columns do not divide at whole {}s of {}",
                              layer.columns,
                              unit_name(layer.spec->weight),
                              unit)};
}

std::optional<RefusedDegree> refuse_config(const EngineCuts& engine,
                                           const ModelFacts& model,
                                           std::int64_t degree) {
  if (model.heads % degree != 0) {
    return RefusedDegree{
        degree,
        "num_attention_heads",
        fmt::format("{} attention heads do not divide", model.heads)};
  }
  const bool repeated = engine.repeats_kv_heads && degree > model.kv_heads;
  if (model.kv_heads > 0 &&
      (repeated ? degree % model.kv_heads : model.kv_heads % degree) != 0) {
    return RefusedDegree{
        degree,
        "num_key_value_heads",
        fmt::format("{} heads of keys and values do not divide",
                    model.kv_heads)};
  }
  if (engine.vocabulary_padding == 0 && model.vocabulary % degree != 0) {
    return RefusedDegree{
        degree,
        "vocab_size",
        fmt::format("{} rows do not divide", model.vocabulary)};
  }
  return std::nullopt;
}

// The first thing that forbids a degree.
std::optional<RefusedDegree> refusal(const EngineCuts& engine,
                                     const ModelFacts& model,
                                     std::int64_t degree) {
  if (auto refused = refuse_config(engine, model, degree)) {
    return refused;
  }
  for (const LayerFacts& layer : model.layers) {
    std::optional<RefusedDegree> refused;
    switch (cut_of(layer)) {
      case Cut::kRows:
        refused = refuse_rows(engine, model, layer, degree);
        break;
      case Cut::kColumns:
        refused = refuse_columns(engine, layer, degree);
        break;
      case Cut::kNone:
        break;
    }
    if (refused) {
      return refused;
    }
  }
  return std::nullopt;
}

bool is_power_of_two(std::int64_t number) {
  return (number & (number - 1)) == 0;
}

}  // namespace

ParallelDegrees parallel_degrees(const EngineCuts& engine,
                                 const ModelFacts& model) {
  ParallelDegrees result;
  const std::int64_t most =
      model.heads > 0 ? std::min(model.heads, kMostDegrees) : kMostDegrees;
  for (std::int64_t degree = 1; degree <= most; ++degree) {
    auto refused = refusal(engine, model, degree);
    if (!refused) {
      result.degrees.push_back(degree);
    } else if (is_power_of_two(degree)) {
      result.refused.push_back(std::move(*refused));
    }
  }
  return result;
}

std::vector<std::int64_t> expert_degrees(const ModelFacts& model) {
  std::vector<std::int64_t> degrees;
  for (std::int64_t degree = 1; degree <= model.experts; ++degree) {
    if (model.experts % degree == 0) {
      degrees.push_back(degree);
    }
  }
  return degrees;
}

}  // namespace nibble::quant
