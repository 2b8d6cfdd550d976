#include "nibble/load/dense_builder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/model/family.h"
#include "nibble/tensor/convert.h"

namespace nibble::load {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

class DenseLinear final : public model::Linear {
 public:
  DenseLinear(Tensor weight, Tensor bias, const backend::Backend& backend)
      : weight_(std::move(weight)), bias_(std::move(bias)), backend_(backend) {}

  void forward(ConstTensorView x,
               TensorView y,
               backend::Stream& stream) const override {
    backend_.matmul(x, weight_.view(), bias_.view(), y, stream);
  }

  [[nodiscard]] std::size_t resident_bytes() const override {
    return weight_.bytes() + (bias_.empty() ? 0 : bias_.bytes());
  }

  [[nodiscard]] std::string description() const override {
    std::string name(dtype_name(weight_.dtype()));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return name;
  }

 private:
  Tensor weight_;  // (out, in)
  Tensor bias_;    // (out) float32, or empty
  const backend::Backend& backend_;
};

class DenseEmbedding final : public model::Embedding {
 public:
  DenseEmbedding(Tensor table, const backend::Backend& backend)
      : table_(std::move(table)), backend_(backend) {}

  void forward(std::span<const std::int32_t> ids,
               TensorView y,
               backend::Stream& stream) const override {
    backend_.embed(table_.view(), ids, y, stream);
  }

  [[nodiscard]] std::size_t resident_bytes() const override {
    return table_.bytes();
  }

 private:
  Tensor table_;  // (vocabulary, hidden)
  const backend::Backend& backend_;
};

void check_shape(const TensorInfo& tensor, const Shape& expected) {
  NIBBLE_CHECK(tensor.shape == expected,
               kCorruptData,
               "{}: found shape {}, expected {} by config.json",
               printable(tensor.name),
               to_string(tensor.shape),
               to_string(expected));
}

void check_elements(const TensorInfo& tensor) {
  NIBBLE_CHECK(is_weight_dtype(tensor.dtype) && tensor.encoding.empty(),
               kUnsupported,
               "{}: found {}, expected F32, F16 or BF16",
               printable(tensor.name),
               tensor.encoding.empty() ? dtype_name(tensor.dtype)
                                       : std::string_view(tensor.encoding));
}

void check_tensor(const CheckpointReader& reader,
                  const std::string& name,
                  const Shape& expected) {
  const TensorInfo& tensor = reader.get(name);
  check_elements(tensor);
  check_shape(tensor, expected);
}

// Rows of a stack that are read and turned together, and columns turned at a
// time: runs long enough on both sides, and the tile stays in the first cache
// whatever power of two the row length is.
constexpr std::int64_t kTurnRows = 64;
constexpr std::int64_t kTurnColumns = 32;

// out (columns, in)[c][first + i] = from (count, stride)[i][first_column + c].
template <typename T>
void turn(const T* from,
          std::int64_t count,
          std::int64_t stride,
          std::int64_t first,
          TensorView out) {
  const std::int64_t columns = out.dim(0);
  const std::int64_t in = out.dim(1);
  T* to = reinterpret_cast<T*>(out.data()) + first;
  T tile[kTurnRows][kTurnColumns];
  for (std::int64_t c = 0; c < columns; c += kTurnColumns) {
    const std::int64_t wide = std::min(kTurnColumns, columns - c);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(tile[i],
                  from + i * stride + c,
                  static_cast<std::size_t>(wide) * sizeof(T));
    }
    for (std::int64_t k = 0; k < wide; ++k) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[(c + k) * in + i] = tile[i][k];
      }
    }
  }
}

// The (columns, in) weight of one expert out of (experts, in, stride).
template <typename T>
Tensor cut_matrix(const CheckpointReader& reader,
                  const TensorInfo& tensor,
                  std::int64_t expert,
                  std::int64_t first_column,
                  std::int64_t columns) {
  const std::int64_t in = tensor.shape[1];
  const std::int64_t stride = tensor.shape[2];
  Tensor weight(tensor.dtype, {columns, in});
  const TensorView out = weight.view();
  parallel_for(in, kTurnRows, [&](std::int64_t begin, std::int64_t end) {
    // Whole rows in one read; the other part of a row is read again for its
    // own matrix, from the page cache.
    std::vector<T> rows(static_cast<std::size_t>((end - begin) * stride));
    const auto offset =
        static_cast<std::uint64_t>((expert * in + begin) * stride);
    reader.read(
        tensor, offset * sizeof(T), std::as_writable_bytes(std::span(rows)));
    turn(rows.data() + first_column, end - begin, stride, begin, out);
  });
  return weight;
}

}  // namespace

Tensor load_vector(const CheckpointReader& reader, const TensorInfo& tensor) {
  const Tensor stored = reader.load(tensor);
  Tensor values(DType::kF32, tensor.shape);
  const std::span<float> floats = values.view().as<float>();
  convert_to_float(stored.view(), floats);
  const auto bad = std::find_if(floats.begin(), floats.end(), [](float value) {
    return !std::isfinite(value);
  });
  NIBBLE_CHECK(bad == floats.end(),
               kCorruptData,
               "{}: found {} at position {}, expected finite numbers",
               printable(tensor.name),
               *bad,
               bad - floats.begin());
  return values;
}

DenseBuilder::DenseBuilder(const CheckpointDirectory& checkpoint) {
  const model::Family& family = model::family_of(*checkpoint.config);
  for (const TensorInfo& tensor : checkpoint.reader->tensors()) {
    const model::TensorPlace place =
        place_of(family, *checkpoint.config, tensor.name, tensor.shape);
    for (const model::StackedPart& part : place.stacked) {
      stacks_[place.stack_module][part.projection] = {
          &tensor, 0, part.first_column, part.columns};
    }
  }
}

std::optional<DenseBuilder::StackedMatrix> DenseBuilder::find_stacked(
    std::string_view module) const {
  const std::size_t projection = module.rfind('.');
  if (projection == std::string_view::npos || projection == 0) {
    return std::nullopt;
  }
  const std::size_t number = module.rfind('.', projection - 1);
  if (number == std::string_view::npos) {
    return std::nullopt;
  }
  const auto stack = stacks_.find(module.substr(0, number));
  if (stack == stacks_.end()) {
    return std::nullopt;
  }
  const auto matrix =
      stack->second.find(std::string(module.substr(projection + 1)));
  if (matrix == stack->second.end()) {
    return std::nullopt;
  }
  StackedMatrix found = matrix->second;
  const char* end = module.data() + projection;
  const auto [rest, error] =
      std::from_chars(module.data() + number + 1, end, found.expert);
  if (error != std::errc() || rest != end || found.expert < 0 ||
      found.expert >= found.tensor->shape[0]) {
    return std::nullopt;
  }
  return found;
}

bool DenseBuilder::claims(const CheckpointReader& reader,
                          const model::LinearSlot& slot) const {
  return reader.find(slot.path + ".weight") != nullptr ||
         find_stacked(slot.path).has_value();
}

void DenseBuilder::check(const CheckpointReader& reader,
                         const model::LinearSlot& slot) const {
  if (reader.find(slot.path + ".weight") != nullptr) {
    check_tensor(reader, slot.path + ".weight", {slot.out, slot.in});
  } else if (const auto stacked = find_stacked(slot.path)) {
    // place_of has compared the whole stack with the config.
    check_elements(*stacked->tensor);
    NIBBLE_ASSERT(stacked->columns == slot.out &&
                  stacked->tensor->shape[1] == slot.in);
  } else {
    check_tensor(reader, slot.path + ".weight", {slot.out, slot.in});
  }
  if (slot.has_bias) {
    check_tensor(reader, slot.path + ".bias", {slot.out});
  }
}

void DenseBuilder::check(const CheckpointReader& reader,
                         const model::EmbeddingSlot& slot) const {
  check_tensor(reader, slot.path + ".weight", {slot.rows, slot.hidden});
}

void DenseBuilder::check(const CheckpointReader& reader,
                         const model::NormSlot& slot,
                         std::int64_t width) const {
  check_tensor(reader, slot.path + ".weight", {width});
}

std::unique_ptr<model::Linear> DenseBuilder::build(
    const CheckpointReader& reader,
    const model::LinearSlot& slot,
    backend::Backend& backend) const {
  Tensor bias;
  if (slot.has_bias) {
    bias = load_vector(reader, reader.get(slot.path + ".bias"));
  }
  return std::make_unique<DenseLinear>(
      load_weight(reader, slot), std::move(bias), backend);
}

Tensor DenseBuilder::load_weight(const CheckpointReader& reader,
                                 const model::LinearSlot& slot) const {
  const TensorInfo* whole = reader.find(slot.path + ".weight");
  return whole != nullptr ? reader.load(*whole)
                          : cut(reader, *find_stacked(slot.path));
}

std::vector<std::string> DenseBuilder::tensors_of(
    const CheckpointReader& reader, const std::string& module) const {
  std::vector<std::string> names;
  if (reader.find(module + ".weight") != nullptr) {
    names.push_back(module + ".weight");
  } else if (const auto stacked = find_stacked(module)) {
    names.push_back(stacked->tensor->name);
  }
  if (reader.find(module + ".bias") != nullptr) {
    names.push_back(module + ".bias");
  }
  return names;
}

std::unique_ptr<model::Embedding> DenseBuilder::build_embedding(
    const CheckpointReader& reader,
    const model::EmbeddingSlot& slot,
    backend::Backend& backend) const {
  return std::make_unique<DenseEmbedding>(
      reader.load(reader.get(slot.path + ".weight")), backend);
}

Tensor DenseBuilder::cut(const CheckpointReader& reader,
                         const StackedMatrix& matrix) {
  const auto of_type = dtype_bytes(matrix.tensor->dtype) == 4
                           ? &cut_matrix<std::uint32_t>
                           : &cut_matrix<std::uint16_t>;
  return of_type(reader,
                 *matrix.tensor,
                 matrix.expert,
                 matrix.first_column,
                 matrix.columns);
}

}  // namespace nibble::load
