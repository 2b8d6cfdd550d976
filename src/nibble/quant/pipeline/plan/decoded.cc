#include "nibble/quant/pipeline/plan/decoded.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/model/config.h"
#include "nibble/model/family.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/plan/config_edit.h"
#include "nibble/quant/pipeline/plan/plan.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

// A source whose config and reader the opened codes refer to.
struct Source {
  load::CheckpointDirectory directory;
  std::unique_ptr<QuantizedCheckpoint> codes;
};

// Where the values of a tensor come from.
struct Origin {
  const TensorInfo* dense = nullptr;  // as it is
  std::string module;                 // a decoded weight
  std::string stack;                  // "model.layers.1.feed_forward.experts"
  std::vector<std::string> projections;  // side by side in the stack
};

template <typename T>
void put_columns(const std::byte* rows,  // (count, in)
                 std::int64_t count,
                 std::int64_t in,
                 std::int64_t first,
                 std::int64_t width,
                 std::byte* out) {  // (in, width)
  const T* from = reinterpret_cast<const T*>(rows);
  T* to = reinterpret_cast<T*>(out);
  for (std::int64_t c = 0; c < in; ++c) {
    for (std::int64_t r = 0; r < count; ++r) {
      to[c * width + first + r] = from[r * in + c];
    }
  }
}

class DecodedReader final : public CheckpointReader {
 public:
  DecodedReader(std::shared_ptr<const Source> source,
                const nlohmann::json& config,
                DType dtype)
      : source_(std::move(source)),
        dtype_(dtype),
        family_stacks_(!model::family_of(config).stacks.empty()) {
    std::set<std::string> packed;
    for (const std::string& module : source_->codes->modules()) {
      const auto names = source_->codes->tensors_of(module);
      packed.insert(names.begin(), names.end());
      if (!in_stack(module)) {
        add(module + ".weight",
            source_->codes->weight_shape(module),
            {nullptr, module, {}, {}});
      }
    }
    for (const TensorInfo& tensor : reader().tensors()) {
      if (!packed.contains(tensor.name) && !expert_weight(tensor.name)) {
        infos_.push_back(tensor);
        origins_.push_back({&tensor, {}, {}, {}});
      }
    }
    if (!stacks_.empty()) {
      add_stacks(model::parse_config(config));
    }
    index_names();
  }

  [[nodiscard]] std::span<const TensorInfo> tensors() const override {
    return infos_;
  }

  [[nodiscard]] const std::map<std::string, std::string>& metadata()
      const override {
    return reader().metadata();
  }

  [[nodiscard]] std::span<const std::filesystem::path> files() const override {
    return reader().files();
  }

  void read(const TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override {
    const Origin& origin = origins_[index_of(tensor)];
    if (origin.dense != nullptr) {
      reader().read(*origin.dense, offset, out);
    } else if (origin.stack.empty()) {
      read_module(origin.module, tensor, offset, out);
    } else {
      read_stack(origin, tensor, offset, out);
    }
  }

  [[nodiscard]] std::optional<Tensor> map(
      const TensorInfo& tensor) const override {
    const Origin& origin = origins_[index_of(tensor)];
    return origin.dense != nullptr ? reader().map(*origin.dense) : std::nullopt;
  }

  void drop_cache(const TensorInfo& tensor,
                  std::uint64_t offset,
                  std::uint64_t bytes) const override {
    const Origin& origin = origins_[index_of(tensor)];
    if (origin.dense != nullptr) {
      reader().drop_cache(*origin.dense, offset, bytes);
    }
  }

 private:
  [[nodiscard]] const CheckpointReader& reader() const {
    return *source_->directory.reader;
  }

  void add(std::string name, const Shape& shape, Origin origin) {
    TensorInfo info;
    info.name = std::move(name);
    info.dtype = dtype_;
    info.shape = shape;
    info.bytes =
        static_cast<std::uint64_t>(shape.elements()) * dtype_bytes(dtype_);
    infos_.push_back(std::move(info));
    origins_.push_back(std::move(origin));
  }

  // Splits "STACK.<expert>.<projection>"; notes the stack.
  bool in_stack(const std::string& module) {
    const std::size_t dot = module.rfind('.');
    const std::size_t number =
        dot == std::string::npos ? dot : module.rfind('.', dot - 1);
    constexpr std::string_view kExperts = ".experts";
    if (!family_stacks_ || number == std::string::npos ||
        !std::string_view(module).substr(0, number).ends_with(kExperts)) {
      return false;
    }
    stacks_[module.substr(0, number)].insert(module.substr(dot + 1));
    return true;
  }

  // A dense expert beside quantized ones belongs to their stack.
  bool expert_weight(const std::string& tensor) {
    constexpr std::string_view kWeight = ".weight";
    return tensor.ends_with(kWeight) &&
           in_stack(tensor.substr(0, tensor.size() - kWeight.size()));
  }

  void add_stacks(const model::ModelConfig& config) {
    for (const auto& [stack, projections] : stacks_) {
      if (projections.contains("gate_proj") ||
          projections.contains("up_proj")) {
        add(stack + ".gate_up_proj",
            {config.experts, config.hidden, 2 * config.expert_intermediate},
            {nullptr, {}, stack, {"gate_proj", "up_proj"}});
      }
      if (projections.contains("down_proj")) {
        add(stack + ".down_proj",
            {config.experts, config.expert_intermediate, config.hidden},
            {nullptr, {}, stack, {"down_proj"}});
      }
    }
  }

  // Rows of a module's weight in dtype_; first at a multiple of kUnpackRows.
  void decode_rows(const std::string& module,
                   std::int64_t first,
                   std::int64_t count,
                   std::int64_t columns,
                   std::byte* out) const {
    if (source_->codes->spec_of(module)) {
      const Quantized tile = source_->codes->unpack(module, first, count);
      scheme_for(tile.spec).decode(tile,
                                   TensorView(out, dtype_, {count, columns}));
      return;
    }
    const TensorInfo& weight = reader().get(module + ".weight");
    NIBBLE_CHECK(
        is_weight_dtype(weight.dtype) && weight.shape.rank() == 2 &&
            weight.shape[1] == columns,
        kUnsupported,
        "tensor {}: found {} {}, expected a dense weight of {} columns",
        printable(weight.name),
        dtype_name(weight.dtype),
        to_string(weight.shape),
        columns);
    Tensor rows(weight.dtype, {count, columns});
    reader().read(
        weight,
        static_cast<std::uint64_t>(first * columns) * dtype_bytes(weight.dtype),
        rows.view().byte_span());
    std::vector<float> values(static_cast<std::size_t>(count * columns));
    convert_to_float(std::as_const(rows).view(), values);
    convert_from_float(values, TensorView(out, dtype_, {count, columns}));
  }

  [[nodiscard]] std::int64_t rows_of(const std::string& module) const {
    return source_->codes->spec_of(module)
               ? source_->codes->weight_shape(module)[0]
               : reader().get(module + ".weight").shape[0];
  }

  void read_module(const std::string& module,
                   const TensorInfo& tensor,
                   std::uint64_t offset,
                   std::span<std::byte> out) const {
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t columns = tensor.shape[1];
    const std::uint64_t row_bytes =
        static_cast<std::uint64_t>(columns) * dtype_bytes(dtype_);
    std::vector<std::byte> block(static_cast<std::size_t>(kUnpackRows) *
                                 row_bytes);
    while (!out.empty()) {
      const std::int64_t row = static_cast<std::int64_t>(offset / row_bytes);
      const std::int64_t first = row / kUnpackRows * kUnpackRows;
      const std::int64_t count = std::min(kUnpackRows, rows - first);
      decode_rows(module, first, count, columns, block.data());
      const std::uint64_t begin =
          offset - static_cast<std::uint64_t>(first) * row_bytes;
      const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(
          out.size(), static_cast<std::uint64_t>(count) * row_bytes - begin));
      std::memcpy(out.data(), block.data() + begin, bytes);
      out = out.subspan(bytes);
      offset += bytes;
    }
  }

  void read_stack(const Origin& origin,
                  const TensorInfo& tensor,
                  std::uint64_t offset,
                  std::span<std::byte> out) const {
    const std::uint64_t expert_bytes =
        static_cast<std::uint64_t>(tensor.shape[1] * tensor.shape[2]) *
        dtype_bytes(dtype_);
    while (!out.empty()) {
      const auto expert = static_cast<std::int64_t>(offset / expert_bytes);
      const std::uint64_t begin = offset % expert_bytes;
      const auto bytes = static_cast<std::size_t>(
          std::min<std::uint64_t>(out.size(), expert_bytes - begin));
      const auto matrix = expert_matrix(origin, tensor, expert);
      std::memcpy(
          out.data(), std::as_const(*matrix).view().data() + begin, bytes);
      out = out.subspan(bytes);
      offset += bytes;
    }
  }

  using Matrix = std::shared_ptr<const Tensor>;

  // (in, width) of an expert, from those that were decoded last.
  [[nodiscard]] Matrix expert_matrix(const Origin& origin,
                                     const TensorInfo& tensor,
                                     std::int64_t expert) const {
    const std::string key = fmt::format("{}/{}", tensor.name, expert);
    {
      const std::scoped_lock lock(mutex_);
      for (const auto& [name, matrix] : recent_) {
        if (name == key) {
          return matrix;
        }
      }
    }
    Matrix made = decode_expert(origin, tensor, expert);
    const std::scoped_lock lock(mutex_);
    recent_.emplace_front(key, made);
    // One for each thread that reads.
    while (recent_.size() > static_cast<std::size_t>(thread_count())) {
      recent_.pop_back();
    }
    return made;
  }

  [[nodiscard]] Matrix decode_expert(const Origin& origin,
                                     const TensorInfo& tensor,
                                     std::int64_t expert) const {
    const std::int64_t in = tensor.shape[1];
    const std::int64_t width = tensor.shape[2];
    Tensor matrix(dtype_, {in, width});
    Tensor block(dtype_, {kUnpackRows, in});
    std::int64_t column = 0;
    for (const std::string& projection : origin.projections) {
      const std::string module =
          fmt::format("{}.{}.{}", origin.stack, expert, projection);
      const std::int64_t rows = rows_of(module);
      NIBBLE_CHECK(column + rows <= width,
                   kCorruptData,
                   "module {}: found {} rows, expected at most {}",
                   printable(module),
                   rows,
                   width - column);
      for (std::int64_t row = 0; row < rows; row += kUnpackRows) {
        const std::int64_t count = std::min(kUnpackRows, rows - row);
        decode_rows(module, row, count, in, block.view().data());
        const auto put = dtype_bytes(dtype_) == 4 ? &put_columns<std::uint32_t>
                                                  : &put_columns<std::uint16_t>;
        put(block.view().data(),
            count,
            in,
            column + row,
            width,
            matrix.view().data());
      }
      column += rows;
    }
    return std::make_shared<const Tensor>(std::move(matrix));
  }

  std::shared_ptr<const Source> source_;
  DType dtype_;
  bool family_stacks_;  // whether experts stand in stacks
  std::vector<TensorInfo> infos_;
  std::vector<Origin> origins_;                          // beside infos_
  std::map<std::string, std::set<std::string>> stacks_;  // of projections
  mutable std::mutex mutex_;
  mutable std::deque<std::pair<std::string, Matrix>> recent_;
};

}  // namespace

DecodedCheckpoint decode_checkpoint(load::CheckpointDirectory source,
                                    DType dtype) {
  auto owner = std::make_shared<Source>();
  DecodedCheckpoint result;
  load::CheckpointDirectory& dense = result.dense;
  dense.path = source.path;
  dense.side_files = source.side_files;
  dense.config = std::make_unique<nlohmann::json>(*source.config);
  dense.config_text = source.config_text;
  owner->codes = open_quantized(*source.config, *source.reader);
  NIBBLE_CHECK(owner->codes != nullptr,
               kUnsupported,
               "source: found a dense checkpoint, expected a quantized one");
  owner->directory = std::move(source);
  for (const char* key : {"quantization_config", "compression_config"}) {
    dense.config->erase(key);
    dense.config_text = without_entry(dense.config_text, key);
  }
  // A head that was tied until it was quantized is one of its own.
  const auto tied = dense.config->find("tie_word_embeddings");
  const nlohmann::json written = nlohmann::json::parse(dense.config_text);
  if (tied != dense.config->end() && written.contains("tie_word_embeddings") &&
      written["tie_word_embeddings"] != *tied) {
    dense.config_text =
        with_entry(dense.config_text, "tie_word_embeddings", *tied);
  }
  result.codes = {owner, owner->codes.get()};
  dense.reader =
      std::make_unique<DecodedReader>(std::move(owner), *dense.config, dtype);
  return result;
}

}  // namespace nibble::quant
