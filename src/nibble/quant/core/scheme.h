#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/backend/backend.h"
#include "nibble/model/linear.h"
#include "nibble/quant/core/quantized.h"

namespace nibble::quant {

struct EncodeOptions {
  Numerics numerics = Numerics::kExact;
  // Range of the whole tensor, for Grain::kTensor only: a tile alone cannot
  // know it.
  std::optional<float> tensor_min;
  std::optional<float> tensor_max;
};

// Rows [first, first + count) of a layer's codes, made on demand so that no
// second copy of a large matrix exists. Callable from one thread at a time.
using RowSource =
    std::function<Quantized(std::int64_t first, std::int64_t count)>;

// One choice of a scheme for the generated table in docs/quantize.md.
struct SchemeRow {
  std::string scheme;       // "int4"
  std::string group;        // "32, 64, 128, 256, channel"
  std::string symmetric;    // "yes", "yes or no"
  std::string activations;  // "none", "none or dynamic (int8 per token)"
  std::string note;
};

// Numbers <-> codes, and the layer that computes with codes. Stateless;
// thread-safe.
class Scheme {
 public:
  virtual ~Scheme() = default;

  // Folder name: "integer", "fp8".
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Names of this scheme in recipes: "int4", "int8".
  [[nodiscard]] virtual std::span<const std::string_view> recipe_names()
      const = 0;
  [[nodiscard]] virtual std::vector<SchemeRow> table() const = 0;
  // Whether spec.scheme is one of recipe_names().
  [[nodiscard]] bool handles(const NumberSpec& spec) const;

  // The weight spec that one of recipe_names() stands for, with the group that
  // a recipe means when it names none: 128 columns below 8 bits, else a row.
  // By default read from the name: "int4" = integers of 4 bits, "fp8" =
  // floating point of 8.
  [[nodiscard]] virtual NumberSpec spec_named(std::string_view name) const;

  // The input spec that goes with "dynamic" activations of this weight.
  // kUnsupported when there is none.
  [[nodiscard]] virtual NumberSpec dynamic_input(
      const NumberSpec& weight) const = 0;

  // Throws kUnsupported (found, expected, what to do) unless a (rows, columns)
  // weight can have this spec.
  virtual void check(const LayerSpec& spec,
                     std::int64_t rows,
                     std::int64_t columns) const = 0;

  // Codes of a tile of rows: weight (rows, columns) F32, F16 or BF16, all
  // finite. All scales come out finite and greater than zero. The bytes depend
  // on the values alone, not on the instruction set or threads.
  [[nodiscard]] virtual Quantized encode(
      const NumberSpec& spec,
      ConstTensorView weight,
      const EncodeOptions& options) const = 0;

  // Values of rows [first, first + count) in out (count, columns):
  // value = (code - zero) * scale, computed in float32. The reference that
  // kernels of layers are tested against; the same on every instruction set.
  virtual void decode_rows(const Quantized& quantized,
                           std::int64_t first,
                           std::int64_t count,
                           std::span<float> out) const = 0;

  // All values, rounded once to the dtype of weight (rows, columns), F32, F16
  // or BF16.
  void decode(const Quantized& quantized, TensorView weight) const;

  // The layer that computes from packed codes. input_scale (1) is required for
  // static inputs and empty otherwise.
  [[nodiscard]] virtual std::unique_ptr<model::Linear> make_linear(
      const LayerSpec& spec,
      std::int64_t rows,
      std::int64_t columns,
      const RowSource& codes,
      std::optional<Tensor> bias,
      std::optional<Tensor> input_scale,
      backend::Backend& backend) const = 0;
};

}  // namespace nibble::quant
