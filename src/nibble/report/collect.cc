#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/model/family.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/inspect.h"
#include "nibble/quant/pipeline/plan/output_place.h"
#include "nibble/report/model_report.h"
#include "nibble/report/scale_counts.h"
#include "nibble/tensor/convert.h"

namespace nibble::report {
namespace {

namespace fs = std::filesystem;
using container::TensorInfo;
using nlohmann::json;

constexpr std::size_t kMostBins = 64;
// Scales that no tensor holds by themselves are taken from the first rows.
constexpr std::int64_t kSampledRows = 128;

// Whether a tensor of a module is nothing but scales of its weight.
bool holds_scales(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  return is_weight_dtype(tensor.dtype) &&
         (name.ends_with("scale") || name.ends_with(".scales") ||
          name.ends_with("scale_inv")) &&
         !name.ends_with("input_scale");
}

class Collector {
 public:
  explicit Collector(const fs::path& path)
      : directory_(load::open_checkpoint(path)),
        family_(model::family_of(*directory_.config)),
        quantized_(
            quant::open_quantized(*directory_.config, *directory_.reader)) {}

  ModelReport run(const fs::path& path, ProgressSink& progress) {
    const quant::InspectReport inspected = quant::inspect(path);
    report_.name = fs::weakly_canonical(fs::absolute(path)).filename().string();
    report_.family = inspected.family;
    report_.format = inspected.format;
    report_.parameters = inspected.parameters;
    report_.bytes = inspected.bytes;
    report_.bits_per_weight = inspected.bits_per_weight;
    add_sizes(inspected);
    if (fs::exists(directory_.path / quant::kReceiptName)) {
      try {
        read_receipt();
      } catch (const json::exception& error) {
        fail(ErrorCode::kCorruptData,
             "{}: found {}",
             (directory_.path / quant::kReceiptName).string(),
             error.what());
      }
    }
    add_scales(progress);
    return std::move(report_);
  }

 private:
  [[nodiscard]] model::TensorPlace place_of(std::string_view module,
                                            const Shape& shape) const {
    return model::place_of(
        family_, *directory_.config, std::string(module) + ".weight", shape);
  }

  void add_sizes(const quant::InspectReport& inspected) {
    std::map<std::pair<std::string, std::string>, KindSize> sizes;
    for (const quant::InspectedLayer& layer : inspected.layers) {
      KindSize& size = sizes[{layer.role, layer.scheme}];
      size.kind = layer.role;
      size.scheme = layer.scheme;
      ++size.matrices;
      size.parameters += layer.shape.elements();
      size.bytes += layer.bytes;
    }
    for (auto& [key, size] : sizes) {
      report_.sizes.push_back(std::move(size));
    }
    std::stable_sort(
        report_.sizes.begin(),
        report_.sizes.end(),
        [](const KindSize& a, const KindSize& b) { return a.bytes > b.bytes; });
  }

  void read_receipt();
  void add_layers(const json& tensor);
  void add_scales(ProgressSink& progress);
  [[nodiscard]] ScaleCounts scales_of(const std::string& module) const;

  load::CheckpointDirectory directory_;
  const model::Family& family_;
  std::unique_ptr<quant::QuantizedCheckpoint> quantized_;
  ModelReport report_;
};

void Collector::read_receipt() {
  const json receipt = quant::read_receipt(directory_.path);
  ReceiptSummary summary;
  summary.program = "nibble " + receipt.at("nibble").get<std::string>();
  summary.source = receipt.at("source").at("path").get<std::string>();
  summary.source_bytes = receipt.at("source").at("bytes").get<std::uint64_t>();
  const json& recipe = receipt.at("recipe");
  summary.recipe_name = recipe.value("name", "");
  summary.recipe = recipe.dump(2, ' ', false, json::error_handler_t::replace);
  summary.numerics = receipt.at("numerics").get<std::string>();
  summary.seconds = receipt.at("seconds").get<double>();
  summary.peak_rss_bytes = receipt.at("peak_rss_bytes").get<std::uint64_t>();
  std::map<std::string, std::int64_t> fates;
  for (const json& tensor : receipt.at("tensors")) {
    std::string fate = tensor.at("fate").get<std::string>();
    if (const auto reason = tensor.find("reason"); reason != tensor.end()) {
      fate += ": " + reason->get<std::string>();
    }
    ++fates[fate];
    add_layers(tensor);
  }
  summary.fates.assign(fates.begin(), fates.end());
  report_.receipt = std::move(summary);
}

void Collector::add_layers(const json& tensor) {
  const auto layers = tensor.find("layers");
  if (layers == tensor.end()) {
    return;
  }
  for (const json& layer : *layers) {
    if (!layer.contains("relative_mse")) {
      continue;  // stays dense
    }
    LayerFigures figures;
    figures.name = layer.at("module").get<std::string>();
    figures.scheme = layer.at("scheme").get<std::string>();
    figures.relative_mse = layer.at("relative_mse").get<double>();
    figures.cosine = layer.at("cosine").get<double>();
    figures.max_abs = layer.at("max_abs").get<double>();
    // A matrix by its name; its shape decides nothing but whether it is one.
    const model::TensorPlace place = place_of(figures.name, {1, 1});
    figures.kind = model::role_name(place.role);
    figures.layer = place.layer;
    if (quantized_ != nullptr && quantized_->spec_of(figures.name)) {
      figures.parameters = quantized_->weight_shape(figures.name).elements();
    }
    report_.layers.push_back(std::move(figures));
  }
}

ScaleCounts Collector::scales_of(const std::string& module) const {
  ScaleCounts counts;
  bool found = false;
  for (const std::string& name : quantized_->tensors_of(module)) {
    const TensorInfo& tensor = directory_.reader->get(name);
    if (!holds_scales(tensor)) {
      continue;
    }
    found = true;
    constexpr std::uint64_t kPiece = 1 << 16;  // elements
    const std::size_t element = dtype_bytes(tensor.dtype);
    const auto elements = static_cast<std::uint64_t>(tensor.shape.elements());
    std::vector<std::byte> bytes;
    std::vector<float> values;
    for (std::uint64_t at = 0; at < elements; at += kPiece) {
      const auto count =
          static_cast<std::size_t>(std::min(kPiece, elements - at));
      bytes.resize(count * element);
      values.resize(count);
      directory_.reader->read(tensor, at * element, bytes);
      convert_to_float(
          {bytes.data(), tensor.dtype, {static_cast<std::int64_t>(count)}},
          values);
      counts.add(values);
    }
  }
  if (!found) {
    const std::int64_t rows =
        std::min(quantized_->weight_shape(module)[0], kSampledRows);
    const quant::Quantized tile = quantized_->unpack(module, 0, rows);
    std::vector<float> values(
        static_cast<std::size_t>(tile.scales.view().elements()));
    convert_to_float(tile.scales.view(), values);
    counts.add(values);
  }
  return counts;
}

void Collector::add_scales(ProgressSink& progress) {
  if (quantized_ == nullptr) {
    return;
  }
  const std::vector<std::string> modules = quantized_->modules();
  std::map<std::pair<std::string, std::string>, ScaleCounts> all;
  std::mutex mutex;
  progress.begin("reading scales", modules.size());
  parallel_for(static_cast<std::int64_t>(modules.size()),
               1,
               [&](std::int64_t i, std::int64_t) {
                 const std::string& module =
                     modules[static_cast<std::size_t>(i)];
                 const ScaleCounts counts = scales_of(module);
                 const model::TensorPlace place =
                     place_of(module, quantized_->weight_shape(module));
                 const std::scoped_lock lock(mutex);
                 all[{std::string(model::role_name(place.role)),
                      describe(*quantized_->spec_of(module))}]
                     .add(counts);
                 progress.advance(1);
               });
  progress.end();
  for (const auto& [key, counts] : all) {
    ScaleFigures figures;
    figures.kind = key.first;
    figures.scheme = key.second;
    figures.count = counts.count();
    figures.unusable = counts.unusable();
    figures.smallest = static_cast<double>(counts.smallest());
    figures.median = counts.median();
    figures.largest = static_cast<double>(counts.largest());
    figures.histogram = counts.histogram(kMostBins);
    figures.histogram.label = key.first + ": " + key.second;
    report_.scales.push_back(std::move(figures));
  }
}

}  // namespace

ModelReport collect_report(const fs::path& directory, ProgressSink& progress) {
  return Collector(directory).run(directory, progress);
}

}  // namespace nibble::report
