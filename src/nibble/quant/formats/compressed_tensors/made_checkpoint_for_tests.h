#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/quant/formats/compressed_tensors/format.h"
#include "nibble/quant/formats/compressed_tensors/memory_reader.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant::compressed_tensors {

// Small checkpoints that tests make and then damage.

inline NumberSpec made_number(int bits,
                              bool floating,
                              Grain grain,
                              std::int64_t group = 0) {
  NumberSpec spec;
  spec.bits = bits;
  spec.floating = floating;
  spec.scheme = (floating ? "fp" : "int") + std::to_string(bits);
  spec.grain = grain;
  spec.group = group;
  if (grain == Grain::kBlock) {
    spec.block_rows = spec.block_columns = 128;
  }
  return spec;
}

// Codes, scales and zero points that differ from place to place.
inline Quantized made_tile(const NumberSpec& spec,
                           std::int64_t rows,
                           std::int64_t columns,
                           unsigned seed) {
  unsigned state = seed * 2654435761U + 1U;
  const auto next = [&state] {
    state = state * 1664525U + 1013904223U;
    return state >> 16;
  };
  Quantized tile;
  tile.spec = spec;
  tile.rows = rows;
  tile.columns = columns;
  tile.codes =
      Tensor(spec.floating ? DType::kF8E4M3 : DType::kI8, {rows, columns});
  const int half = 1 << (spec.bits - 1);
  for (std::uint8_t& code : tile.codes.view().raw<std::uint8_t>()) {
    const unsigned bits = next() & 0xFFU;
    if (spec.floating) {
      code = static_cast<std::uint8_t>((bits & 0x7FU) == 0x7FU ? 0U : bits);
    } else {
      code =
          static_cast<std::uint8_t>(static_cast<int>(bits) % (2 * half) - half);
    }
  }
  const ScaleGrid grid = scale_grid(spec, rows, columns);
  tile.scales = Tensor(spec.scale_dtype, {grid.rows, grid.columns});
  std::vector<float> scales(static_cast<std::size_t>(grid.rows * grid.columns));
  for (float& scale : scales) {
    scale = 0.001F * static_cast<float>(1 + next() % 100U);
  }
  convert_from_float(scales, tile.scales.view());
  if (!spec.symmetric) {
    tile.zeros = Tensor(DType::kI8, {grid.rows, grid.columns});
    for (std::int8_t& zero : tile.zeros->view().as<std::int8_t>()) {
      zero = static_cast<std::int8_t>(static_cast<int>(next()) % (2 * half) -
                                      half);
    }
  }
  return tile;
}

struct MadeCheckpoint {
  std::map<std::string, MemoryReader::Entry> tensors;
  std::vector<LayerDecision> layers;
  std::map<std::string, Quantized> originals;
  nlohmann::json config;

  // Packs a made layer in tiles of tile_rows (a multiple of 128).
  void add(const std::string& module,
           const LayerSpec& spec,
           std::int64_t rows,
           std::int64_t columns) {
    const Format& format = compressed_tensors_format();
    for (const container::TensorInfo& tensor :
         format.plan(module, spec, rows, columns)) {
      // Filled with a pattern, so that a byte nobody writes is noticed.
      tensors[tensor.name] = {
          tensor.dtype,
          tensor.shape,
          std::vector<std::byte>(tensor.bytes, std::byte{0x3C})};
    }
    Quantized whole = made_tile(
        spec.weight, rows, columns, static_cast<unsigned>(layers.size()) + 1U);
    format.pack(module,
                spec,
                rows,
                0,
                whole,
                [this](std::string_view name,
                       std::uint64_t offset,
                       std::span<const std::byte> bytes) {
                  auto& out = tensors.at(std::string(name)).bytes;
                  NIBBLE_CHECK(offset + bytes.size() <= out.size(),
                               kInternal,
                               "written past the end");
                  std::copy(bytes.begin(),
                            bytes.end(),
                            out.begin() + static_cast<std::ptrdiff_t>(offset));
                });
    originals.emplace(module, std::move(whole));
    layers.push_back({module, rows, columns, spec});
  }

  void add_dense(const std::string& module,
                 std::int64_t rows,
                 std::int64_t columns) {
    tensors[module + ".weight"] = {
        DType::kBF16,
        {rows, columns},
        std::vector<std::byte>(static_cast<std::size_t>(rows * columns * 2))};
    layers.push_back({module, rows, columns, std::nullopt});
  }

  // Declares the layers added so far.
  void declare() {
    config["quantization_config"] =
        compressed_tensors_format().config_entry(layers);
  }

  nlohmann::json& entry() { return config["quantization_config"]; }

  nlohmann::json& weights() {
    return entry()["config_groups"]["group_0"]["weights"];
  }
};

}  // namespace nibble::quant::compressed_tensors
