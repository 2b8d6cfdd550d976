#include "nibble/quant/pipeline/convert.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/container/cast.h"
#include "nibble/load/native/native_form.h"
#include "nibble/load/native/native_recut.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/inspect.h"
#include "nibble/quant/pipeline/plan/code_source.h"
#include "nibble/quant/pipeline/plan/config_edit.h"
#include "nibble/quant/pipeline/plan/decoded.h"
#include "nibble/quant/pipeline/plan/native_recipe.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

constexpr std::int64_t kChunk = 1 << 18;  // elements

bool is_packed(const load::CheckpointDirectory& source) {
  const auto entry = source.config->find("quantization_config");
  return entry != source.config->end() && !entry->is_null();
}

std::string_view layout_name(Layout layout) {
  switch (layout) {
    case Layout::kHuggingFace:
      return "hf";
    case Layout::kMeta:
      return "meta";
    case Layout::kGptFast:
      break;
  }
  return "gpt-fast";
}

// The type of what a quantized checkpoint holds dense.
DType dense_dtype(const load::CheckpointDirectory& source) {
  for (const TensorInfo& tensor : source.reader->tensors()) {
    if (tensor.name.ends_with("embed_tokens.weight") &&
        is_weight_dtype(tensor.dtype)) {
      return tensor.dtype;
    }
  }
  return DType::kBF16;
}

// Whether every weight survives being rounded to a type.
bool holds_exactly(const CheckpointReader& reader, DType to) {
  if (to == DType::kF32) {
    return true;  // holds every F16 and BF16
  }
  std::atomic<bool> exact = true;
  const auto tensors = reader.tensors();
  parallel_for(
      static_cast<std::int64_t>(tensors.size()),
      1,
      [&](std::int64_t index, std::int64_t) {
        const TensorInfo& tensor = tensors[static_cast<std::size_t>(index)];
        if (!is_weight_dtype(tensor.dtype) || tensor.dtype == to) {
          return;
        }
        const std::size_t item = dtype_bytes(tensor.dtype);
        const std::int64_t elements = tensor.shape.elements();
        std::vector<std::byte> bytes;
        std::vector<float> values;
        for (std::int64_t at = 0; at < elements && exact; at += kChunk) {
          const std::int64_t count = std::min(kChunk, elements - at);
          bytes.resize(static_cast<std::size_t>(count) * item);
          values.resize(static_cast<std::size_t>(count));
          reader.read(tensor, static_cast<std::uint64_t>(at) * item, bytes);
          convert_to_float({bytes.data(), tensor.dtype, {count}}, values);
          if (std::any_of(values.begin(), values.end(), [&](float value) {
                return round_to(to, value) != value;
              })) {
            exact = false;
          }
        }
      });
  return exact;
}

// config.json's word for the type of weights.
void name_dtype(DType to, load::CheckpointDirectory& source) {
  const char* name = to == DType::kF32   ? "float32"
                     : to == DType::kF16 ? "float16"
                                         : "bfloat16";
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (source.config->contains(key)) {
      (*source.config)[key] = name;
      source.config_text = with_entry(source.config_text, key, name);
    }
  }
}

[[noreturn]] void refuse_codes(const Conversion& conversion,
                               const Error& reason) {
  fail_with_hint(ErrorCode::kUnsupported,
                 "--requantize RECIPE decodes the weights and quantizes them "
                 "again; --dtype bf16 decodes them",
                 "convert: found codes that the layout {} cannot hold as they "
                 "are: {}",
                 layout_name(conversion.to),
                 reason.what());
}

class Converter {
 public:
  Converter(load::CheckpointDirectory source,
            const Conversion& conversion,
            QuantizeOptions options)
      : source_(std::move(source)),
        conversion_(conversion),
        options_(std::move(options)) {}

  ConvertReport run(ProgressSink& progress, const std::atomic<bool>& stop) {
    if (is_packed(source_)) {
      move_codes();
    } else {
      move_weights();
    }
    ConvertReport report;
    report.written = options_.codes
                         ? write_moved(progress, stop)
                         : quantize(source_, recipe_, options_, progress, stop);
    report.exact =
        exact_ &&
        (!narrowed_from_ || holds_exactly(*narrowed_from_, *conversion_.dtype));
    return report;
  }

 private:
  [[nodiscard]] load::NativeLayout native_layout() const {
    return conversion_.to == Layout::kMeta ? load::NativeLayout::kMeta
                                           : load::NativeLayout::kGptFast;
  }

  [[nodiscard]] std::int64_t ranks() const {
    return conversion_.ranks != 0
               ? conversion_.ranks
               : load::default_ranks(source_, native_layout());
  }

  QuantizeReport write_moved(ProgressSink& progress,
                             const std::atomic<bool>& stop) {
    try {
      return quantize(source_, recipe_, options_, progress, stop);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) {
        throw;
      }
      refuse_codes(conversion_, error);
    }
  }

  void move_weights() {
    NIBBLE_CHECK(
        !conversion_.requantize,
        kInvalidArgument,
        "--requantize: found a dense source, expected a quantized one: "
        "nibble quantize quantizes it");
    const std::int64_t count = ranks();
    if (conversion_.dtype) {
      narrowed_from_ = cast_source(*conversion_.dtype);
    }
    lay_out(count);
  }

  // Returns the weights as they were.
  std::shared_ptr<const CheckpointReader> cast_source(DType to) {
    std::shared_ptr<const CheckpointReader> original =
        std::move(source_.reader);
    source_.reader = std::make_unique<container::CastReader>(original, to);
    name_dtype(to, source_);
    return original;
  }

  void lay_out(std::int64_t count) {
    if (conversion_.to == Layout::kHuggingFace) {
      return;
    }
    options_.format = conversion_.to == Layout::kMeta ? "meta" : "gpt_fast";
    source_ = load::as_native(std::move(source_), native_layout(), count);
  }

  void move_codes() {
    const std::int64_t count = ranks();
    const InspectReport held = inspect(source_);
    options_.source_size = SourceSize{held.bytes, held.parameters};
    if (conversion_.dtype || conversion_.requantize) {
      decode();
      lay_out(count);
      return;
    }
    const nlohmann::json& entry = source_.config->at("quantization_config");
    const bool meta =
        entry.is_object() && entry.value("quant_method", "") == "meta";
    if (meta && conversion_.to == Layout::kMeta) {
      // Shards of codes are cut anew.
      options_.format = "meta";
      source_ = load::recut(std::move(source_), count);
      return;
    }
    // Decoded in float32, which holds every value, so that the receipt shows
    // that none changed.
    DecodedCheckpoint decoded =
        decode_checkpoint(std::move(source_), DType::kF32);
    source_ = std::move(decoded.dense);
    lay_out(count);
    options_.codes = quant::move_codes(std::move(decoded.codes), source_);
  }

  // The weights that the codes stand for, which are then written dense or
  // quantized again.
  void decode() {
    const DType dtype = conversion_.dtype.value_or(dense_dtype(source_));
    source_ = decode_checkpoint(std::move(source_), dtype).dense;
    if (conversion_.dtype) {
      name_dtype(dtype, source_);
    }
    exact_ = false;
    if (!conversion_.requantize) {
      options_.notes.push_back(
          "weights are what the codes of the source stand for");
      return;
    }
    options_.notes.push_back(
        "requantized: codes were chosen anew from the decoded weights of a "
        "quantized source");
    if (conversion_.to == Layout::kHuggingFace) {
      recipe_ = load_recipe(*conversion_.requantize);
    } else {
      recipe_ = native_recipe(
          native_layout(), *conversion_.requantize, 0, *source_.config);
    }
  }

  load::CheckpointDirectory source_;
  const Conversion& conversion_;
  QuantizeOptions options_;
  Recipe recipe_ = copying_recipe();
  bool exact_ = true;
  // Weights whose type changes.
  std::shared_ptr<const CheckpointReader> narrowed_from_;
};

}  // namespace

ConvertReport convert(load::CheckpointDirectory source,
                      const Conversion& conversion,
                      QuantizeOptions options,
                      ProgressSink& progress,
                      const std::atomic<bool>& stop) {
  return Converter(std::move(source), conversion, std::move(options))
      .run(progress, stop);
}

}  // namespace nibble::quant
