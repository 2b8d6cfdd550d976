#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/checkpoint.h"
#include "nibble/quant/core/quantized.h"

namespace nibble::quant {

// What a writer decided for one linear module, or an embedding table.
struct LayerDecision {
  std::string module;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::optional<LayerSpec> spec;  // nothing = stays dense
  bool embedding = false;
};

// A quantized checkpoint that someone wrote, opened. Const methods are
// thread-safe.
class QuantizedCheckpoint {
 public:
  virtual ~QuantizedCheckpoint() = default;

  // What kind it is, for people: "compressed-tensors pack-quantized".
  [[nodiscard]] virtual std::string description() const = 0;
  // The spec of a module, or nothing when it is stored dense.
  [[nodiscard]] virtual std::optional<LayerSpec> spec_of(
      std::string_view module) const = 0;
  // All quantized modules, sorted.
  [[nodiscard]] virtual std::vector<std::string> modules() const = 0;

  // The same weights as modules of the files, which is what Format::pack
  // writes: parts of ranks, or several linears in one. All methods that take a
  // module know these, too.
  [[nodiscard]] virtual std::vector<std::string> stored_modules() const {
    return modules();
  }

  // (rows, columns) of a quantized module's weight.
  [[nodiscard]] virtual Shape weight_shape(std::string_view module) const = 0;
  // Tensors of the file that make up a quantized module, bias left out.
  [[nodiscard]] virtual std::vector<std::string> tensors_of(
      std::string_view module) const = 0;
  // Rows [first, first + count); first at a multiple of 128 or 0. Codes,
  // scales and zero points are validated: kCorruptData for non-finite or zero
  // scales and NaN codes, with the position.
  [[nodiscard]] virtual Quantized unpack(std::string_view module,
                                         std::int64_t first,
                                         std::int64_t count) const = 0;
  // Stored scale of static inputs (1), or nothing.
  [[nodiscard]] virtual std::optional<Tensor> input_scale(
      std::string_view module) const = 0;
};

// How codes, scales and zero points are named, packed and declared. Does no
// arithmetic on weights. Stateless; thread-safe.
class Format {
 public:
  // Receives bytes for offset of a planned tensor.
  using Sink = std::function<void(std::string_view tensor,
                                  std::uint64_t offset,
                                  std::span<const std::byte> bytes)>;

  virtual ~Format() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;

  // The checkpoint opened, or nullptr when it is not of this format. Checks
  // that every declared module has exactly its tensors with the right shapes
  // (kCorruptData), before any data is read. config and reader must outlive
  // the result.
  [[nodiscard]] virtual std::unique_ptr<QuantizedCheckpoint> open(
      const nlohmann::json& config,
      const container::CheckpointReader& reader) const = 0;

  // What a recipe's spec comes to here: the type of scales, and grains that
  // this format alone has. source is the type of the weight.
  [[nodiscard]] virtual LayerSpec settled(LayerSpec spec,
                                          std::string_view module,
                                          std::int64_t columns,
                                          DType source) const;

  // Throws kUnsupported when this format cannot hold such a layer.
  virtual void check(const LayerSpec& spec,
                     std::int64_t rows,
                     std::int64_t columns) const = 0;

  // Names, types and shapes of a layer's tensors, before any data. Among them
  // the scale of static inputs, which pack does not write: it belongs to
  // calibration, not to tiles of the weight.
  [[nodiscard]] virtual std::vector<container::TensorInfo> plan(
      std::string_view module,
      const LayerSpec& spec,
      std::int64_t rows,
      std::int64_t columns) const = 0;

  // Packs a tile whose first row is first_row (a multiple of row_multiple)
  // of a layer with `rows` rows. Tensors that do not depend on a tile (shapes)
  // come with the first one.
  virtual void pack(std::string_view module,
                    const LayerSpec& spec,
                    std::int64_t rows,
                    std::int64_t first_row,
                    const Quantized& tile,
                    const Sink& sink) const = 0;

  // How the tool that this format comes from encodes such a layer: its
  // arithmetic, and the type in which it holds scales while it chooses codes.
  // They are stored in the spec's own type.
  struct Encoding {
    Numerics numerics = Numerics::kReference;
    DType scale_dtype = DType::kBF16;
  };

  [[nodiscard]] virtual Encoding reference_encoding(
      const LayerSpec& spec) const {
    return {Numerics::kReference, spec.weight.scale_dtype};
  }

  // What numbers one of a layer's planned tensors may hold.
  enum class Numbers {
    kAny,
    kScales,    // finite, above zero
    kFp8Codes,  // no NaN
    kPairs,     // scale, offset, scale ...; finite, scales above zero
  };

  // By default: floats are scales, F8_E4M3 are codes.
  [[nodiscard]] virtual Numbers numbers_in(
      const LayerSpec& spec, const container::TensorInfo& tensor) const;

  // This format in another of its orders of codes, or nullptr when it has none
  // of that name. Known to format_named as "<format>/<name>".
  [[nodiscard]] virtual const Format* variant(std::string_view /*name*/) const {
    return nullptr;
  }

  // Whether rows lie apart in the files, so that a tile is written in many
  // pieces: pack then gets tiles as large as can be.
  [[nodiscard]] virtual bool scatters_rows() const { return false; }

  // Tiles start at multiples of this many rows, and of a block's rows.
  [[nodiscard]] virtual std::int64_t row_multiple() const { return 128; }

  // The entry of config.json that declares all of it, and its key; no key when
  // the files declare themselves.
  [[nodiscard]] virtual std::string_view config_key() const = 0;
  [[nodiscard]] virtual nlohmann::json config_entry(
      std::span<const LayerDecision> layers) const = 0;
};

}  // namespace nibble::quant
