#include "nibble/quant/pipeline/plan/code_source.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/container/tensor_part.h"
#include "nibble/load/native/native_form.h"
#include "nibble/model/config.h"
#include "nibble/quant/pipeline/plan/plan.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// A piece of a module of the output: rows of a module of the source, cut to
// some of its columns.
struct Piece {
  std::string module;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  bool rotary = false;  // in Meta's order of rows, not the source's
};

// Copies row `from` of one tile to row `to` of another; columns [first, first +
// count) of the source's columns, and their scales.
void copy_row(const Quantized& from,
              std::int64_t from_row,
              std::int64_t first,
              Quantized& to,
              std::int64_t to_row) {
  std::memcpy(
      to.codes.view().data() + to_row * to.columns,
      std::as_const(from.codes).view().data() + from_row * from.columns + first,
      static_cast<std::size_t>(to.columns));
  const std::int64_t from_width = from.scales.shape()[1];
  const std::int64_t to_width = to.scales.shape()[1];
  const std::int64_t first_group = first * from_width / from.columns;
  const std::size_t item = dtype_bytes(from.scales.dtype());
  std::vector<float> values(static_cast<std::size_t>(to_width));
  const auto scales = std::as_const(from.scales)
                          .view()
                          .rows(from_row, 1)
                          .byte_span()
                          .subspan(static_cast<std::size_t>(first_group) * item,
                                   static_cast<std::size_t>(to_width) * item);
  convert_to_float({scales.data(), from.scales.dtype(), {to_width}}, values);
  convert_from_float(values, to.scales.view().rows(to_row, 1));
}

class MovedCodes final : public CodeSource {
 public:
  MovedCodes(std::shared_ptr<const QuantizedCheckpoint> codes,
             const load::CheckpointDirectory& target)
      : codes_(std::move(codes)),
        native_(target.native),
        config_(model::parse_config(*target.config)) {}

  [[nodiscard]] std::optional<LayerSpec> spec_of(
      std::string_view module) const override {
    const std::vector<Piece> pieces = pieces_of(module);
    std::optional<LayerSpec> spec;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::optional<LayerSpec> found = codes_->spec_of(pieces[i].module);
      NIBBLE_CHECK(
          i == 0 || found == spec,
          kUnsupported,
          "module {}: found {}, expected {} as of {}, with which it is "
          "stored",
          printable(pieces[i].module),
          found ? describe(*found) : "a dense weight",
          spec ? describe(*spec) : "a dense weight",
          printable(pieces[0].module));
      spec = found;
    }
    if (spec) {
      with_context(printable(module), [&] { settle(pieces.front(), *spec); });
    }
    return spec;
  }

  [[nodiscard]] Quantized rows(std::string_view module,
                               std::int64_t first,
                               std::int64_t count) const override {
    Quantized tile;
    tile.spec = spec_of(module).value().weight;
    const std::vector<Piece> pieces = pieces_of(module);
    tile.rows = count;
    tile.columns = pieces.front().columns;
    tile.codes = Tensor(tile.spec.floating ? DType::kF8E4M3 : DType::kI8,
                        {count, tile.columns});
    const ScaleGrid grid = scale_grid(tile.spec, count, tile.columns);
    tile.scales = Tensor(tile.spec.scale_dtype, {grid.rows, grid.columns});
    if (tile.spec.real_zero) {
      tile.zeros = Tensor(tile.spec.scale_dtype, {grid.rows, grid.columns});
      const auto zeros = tile.zeros->view().byte_span();
      std::fill(zeros.begin(), zeros.end(), std::byte{0});
    }
    std::int64_t begin = 0;  // of a piece
    for (const Piece& piece : pieces) {
      const std::int64_t from = std::max(first, begin);
      const std::int64_t to = std::min(first + count, begin + piece.rows);
      if (from < to) {
        copy_piece(piece, from - begin, to - from, from - first, tile);
      }
      begin += piece.rows;
    }
    return tile;
  }

 private:
  // Rows [first, first + count) of a piece.
  void copy_piece(const Piece& piece,
                  std::int64_t first,
                  std::int64_t count,
                  std::int64_t to,
                  Quantized& tile) const {
    if (native_ == nullptr) {
      // Rows of a tile of the output begin where unpack may begin.
      tile = codes_->unpack(piece.module, first, count);
      return;
    }
    const std::int64_t all = codes_->weight_shape(piece.module)[0];
    Quantized block;
    std::int64_t block_first = -1;
    for (std::int64_t r = 0; r < count; ++r) {
      std::int64_t row = piece.first_row + first + r;
      if (piece.rotary) {
        row = model::row_of_half(row, config_.head_dim);
      }
      const std::int64_t wanted = row / kUnpackRows * kUnpackRows;
      if (wanted != block_first) {
        block_first = wanted;
        block = codes_->unpack(
            piece.module, wanted, std::min(kUnpackRows, all - wanted));
      }
      copy_row(block, row - block_first, piece.first_column, tile, to + r);
    }
  }

  // Changes of a spec that change no value, or kUnsupported.
  void settle(const Piece& piece, LayerSpec& spec) const {
    NumberSpec& weight = spec.weight;
    if (native_ == nullptr) {
      NIBBLE_CHECK(
          !weight.real_zero && !(spec.input && spec.input->upper_bound != 0),
          kUnsupported,
          "found {}, expected numbers that compressed-tensors has: no "
          "real zeros, no bound on inputs",
          describe(spec));
      return;
    }
    const bool plain = weight.symmetric && !spec.input;
    if (native_->layout == load::NativeLayout::kMeta) {
      const bool int4 =
          weight.scheme == "int4" && weight.grain == Grain::kGroup;
      NIBBLE_CHECK(
          plain && int4 && piece.first_column % weight.group == 0 &&
              piece.columns % weight.group == 0,
          kUnsupported,
          "found {}, expected symmetric int4 in groups that every rank "
          "holds whole",
          describe(spec));
      weight.scale_dtype = DType::kF32;  // holds every BF16 and F16
      return;
    }
    NIBBLE_CHECK(plain && weight.scale_dtype == DType::kBF16,
                 kUnsupported,
                 "found {} with scales of {}, expected symmetric integers with "
                 "scales of BF16",
                 describe(spec),
                 dtype_name(weight.scale_dtype));
    if (weight.scheme == "int4") {
      weight.symmetric = false;
      weight.real_zero = true;  // code 8 stands for 0
    }
  }

  [[nodiscard]] Piece whole(std::string module) const {
    const Shape shape = shape_of(module);
    return {std::move(module), 0, shape[0], 0, shape[1], false};
  }

  // (0, 0) for a module that is stored dense, of which nothing is moved.
  [[nodiscard]] Shape shape_of(const std::string& module) const {
    return codes_->spec_of(module) ? codes_->weight_shape(module)
                                   : Shape({0, 0});
  }

  [[nodiscard]] std::vector<Piece> pieces_of(std::string_view module) const {
    if (native_ == nullptr) {
      return {whole(std::string(module))};
    }
    const container::TensorPart part = container::TensorPart::parse(module);
    const std::string_view tensor = part.tensor;
    const std::size_t slash = tensor.find('/');
    std::int64_t rank = 0;
    std::from_chars(tensor.data() + 4, tensor.data() + slash, rank);
    std::string native(tensor.substr(slash + 1));
    constexpr std::string_view kWeight = ".weight";
    if (native.ends_with(kWeight)) {
      native.resize(native.size() - kWeight.size());
    }
    if (native == "output") {
      return {cut_rows(config_.name_prefix + "lm_head", rank)};
    }
    const std::size_t dot =
        native.find('.', std::string_view("layers.").size());
    const std::string layer =
        config_.name_prefix + "model." + native.substr(0, dot + 1);
    return pieces_in_layer(
        layer, native.substr(dot + 1), rank, std::to_string(part.index));
  }

  [[nodiscard]] std::vector<Piece> pieces_in_layer(
      const std::string& layer,
      const std::string& rest,
      std::int64_t rank,
      const std::string& expert) const {
    const std::string attention = layer + "self_attn.";
    const std::string forward = layer + "feed_forward.";
    const std::string mlp = layer + config_.mlp_module + ".";
    const auto rotary = [&](const char* name) {
      Piece piece = cut_rows(attention + name, rank);
      piece.rotary = !config_.rope_interleaved;
      return piece;
    };
    if (rest == "attention.wqkv") {
      return {rotary("q_proj"),
              rotary("k_proj"),
              cut_rows(attention + "v_proj", rank)};
    }
    if (rest == "attention.wq" || rest == "attention.wk") {
      return {rotary(rest.back() == 'q' ? "q_proj" : "k_proj")};
    }
    if (rest == "attention.wv") {
      return {cut_rows(attention + "v_proj", rank)};
    }
    if (rest == "attention.wo") {
      return {cut_columns(attention + "o_proj", rank)};
    }
    if (rest == "feed_forward.w1") {
      return {cut_rows(mlp + "gate_proj", rank)};
    }
    if (rest == "feed_forward.w3") {
      return {cut_rows(mlp + "up_proj", rank)};
    }
    if (rest == "feed_forward.w2" || rest == "feed_forward.mlp.fc2_weight") {
      return {cut_columns(mlp + "down_proj", rank)};
    }
    if (rest == "feed_forward.mlp.fc1_weight") {
      return {cut_rows(mlp + "gate_proj", rank),
              cut_rows(mlp + "up_proj", rank)};
    }
    const std::string routed = forward + "experts." + expert + ".";
    const std::string shared = forward + "shared_expert.";
    if (rest == "feed_forward.experts.moe_w_in_eD_F") {
      return {cut_rows(routed + "gate_proj", rank)};
    }
    if (rest == "feed_forward.experts.moe_w_swiglu_eD_F") {
      return {cut_rows(routed + "up_proj", rank)};
    }
    if (rest == "feed_forward.experts.moe_w_out_eF_D") {
      return {cut_columns(routed + "down_proj", rank)};
    }
    if (rest == "feed_forward.w_in_shared_FD") {
      return {cut_rows(shared + "gate_proj", rank)};
    }
    if (rest == "feed_forward.w_swiglu_FD") {
      return {cut_rows(shared + "up_proj", rank)};
    }
    NIBBLE_CHECK(rest == "feed_forward.w_out_shared_DF",
                 kInternal,
                 "module {}: found no linear of the model for it",
                 rest);
    return {cut_columns(shared + "down_proj", rank)};
  }

  [[nodiscard]] Piece cut_rows(const std::string& module,
                               std::int64_t rank) const {
    Piece piece = whole(module);
    piece.rows /= native_->ranks;
    piece.first_row = rank * piece.rows;
    return piece;
  }

  [[nodiscard]] Piece cut_columns(const std::string& module,
                                  std::int64_t rank) const {
    Piece piece = whole(module);
    piece.columns /= native_->ranks;
    piece.first_column = rank * piece.columns;
    return piece;
  }

  std::shared_ptr<const QuantizedCheckpoint> codes_;
  std::shared_ptr<const load::NativeForm> native_;
  model::ModelConfig config_;
};

}  // namespace

std::shared_ptr<const CodeSource> move_codes(
    std::shared_ptr<const QuantizedCheckpoint> codes,
    const load::CheckpointDirectory& target) {
  return std::make_shared<MovedCodes>(std::move(codes), target);
}

}  // namespace nibble::quant
