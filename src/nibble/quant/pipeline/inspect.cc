#include "nibble/quant/pipeline/inspect.h"

#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/model/family.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/plan/survey.h"

namespace nibble::quant {
namespace {

using container::CheckpointReader;
using container::TensorInfo;
using nlohmann::json;

// Weights of routed experts count for one token only in the share of experts
// that it is sent to.
struct Experts {
  std::int64_t count = 0;
  std::int64_t chosen = 0;
};

Experts experts_of(const json& config) {
  const auto text = config.find("text_config");
  const json& decoder =
      text != config.end() && text->is_object() ? *text : config;
  const auto number = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const auto found = decoder.find(key);
      if (found != decoder.end() && found->is_number_integer()) {
        return found->get<std::int64_t>();
      }
    }
    return std::int64_t{0};
  };
  return {number({"num_local_experts", "num_experts"}),
          number({"num_experts_per_tok"})};
}

class Inspector {
 public:
  // config may be null.
  Inspector(const CheckpointReader& reader, const json* config)
      : reader_(reader),
        config_(config != nullptr ? *config : empty_),
        family_(model::family_of(config_)),
        quantized_(config != nullptr ? open_quantized(config_, reader_)
                                     : nullptr) {}

  InspectReport run(bool has_config) {
    report_.family = has_config ? family_.name : "";
    const auto classes = config_.find("architectures");
    if (classes != config_.end() && classes->is_array() && !classes->empty() &&
        classes->front().is_string()) {
      report_.architecture = classes->front().get<std::string>();
    }
    report_.format = quantized_ ? quantized_->description() : "dense";
    for (const std::filesystem::path& file : reader_.files()) {
      report_.files.push_back(file.filename().string());
    }
    for (const TensorInfo& tensor : reader_.tensors()) {
      report_.bytes += tensor.bytes;
    }
    add_modules();
    add_dense_tensors();
    add_layers();
    if (report_.parameters > 0) {
      report_.bits_per_weight = 8 * static_cast<double>(report_.bytes) /
                                static_cast<double>(report_.parameters);
    }
    report_.active_parameters = has_config ? active_parameters() : 0;
    return std::move(report_);
  }

 private:
  void count(std::int64_t elements, model::Role role) {
    report_.parameters += elements;
    expert_parameters_ += role == model::Role::kExpert ? elements : 0;
  }

  // Experts are alike, so a token passes through their share of them all.
  [[nodiscard]] std::int64_t active_parameters() const {
    const Experts experts = experts_of(config_);
    if (experts.count <= 0 || experts.chosen <= 0) {
      return report_.parameters;
    }
    return report_.parameters - expert_parameters_ +
           expert_parameters_ / experts.count * experts.chosen;
  }

  void add(InspectedLayer layer) {
    layers_.emplace(layer.name, std::move(layer));
  }

  void add_modules() {
    if (!quantized_) {
      return;
    }
    for (const std::string& module : quantized_->modules()) {
      const Shape shape = quantized_->weight_shape(module);
      const model::TensorPlace place =
          model::place_of(family_, config_, module + ".weight", shape);
      InspectedLayer layer{.name = module,
                           .shape = shape,
                           .role = std::string(model::role_name(place.role)),
                           .scheme = describe(*quantized_->spec_of(module)),
                           .dtype = {},
                           .bytes = 0};
      std::uint64_t largest = 0;
      for (const std::string& name : quantized_->tensors_of(module)) {
        const TensorInfo& tensor = reader_.get(name);
        taken_.insert(tensor.name);
        layer.bytes += tensor.bytes;
        if (tensor.bytes >= largest) {
          largest = tensor.bytes;
          layer.dtype = dtype_name(tensor.dtype);
        }
      }
      count(shape.elements(), place.role);
      add(std::move(layer));
    }
  }

  void add_dense_tensors() {
    for (const TensorInfo& tensor : reader_.tensors()) {
      if (taken_.contains(tensor.name)) {
        continue;
      }
      const model::TensorPlace place =
          model::place_of(family_, config_, tensor.name, tensor.shape);
      const bool weight = place.part == "weight";
      count(tensor.shape.elements(), place.role);
      add({.name = weight ? place.module : tensor.name,
           .shape = tensor.shape,
           .role = std::string(model::role_name(place.role)),
           .scheme = "",
           .dtype = std::string(dtype_name(tensor.dtype)),
           .bytes = tensor.bytes});
    }
  }

  void add_layers() {
    for (auto& [name, layer] : layers_) {
      report_.layers.push_back(std::move(layer));
    }
  }

  struct Natural {
    bool operator()(const std::string& a, const std::string& b) const {
      return natural_less(a, b);
    }
  };

  const json empty_ = json::object();
  const CheckpointReader& reader_;
  const json& config_;
  const model::Family& family_;
  const std::unique_ptr<QuantizedCheckpoint> quantized_;
  std::set<std::string_view> taken_;
  std::multimap<std::string, InspectedLayer, Natural> layers_;
  std::int64_t expert_parameters_ = 0;
  InspectReport report_;
};

}  // namespace

InspectReport inspect(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path) || path.extension() == ".pth") {
    return inspect(load::open_checkpoint(path));
  }
  return Inspector(*container::open_safetensors(path), nullptr).run(false);
}

InspectReport inspect(const load::CheckpointDirectory& directory) {
  return Inspector(*directory.reader, directory.config.get()).run(true);
}

json to_json(const InspectReport& report) {
  json layers = json::array();
  for (const InspectedLayer& layer : report.layers) {
    layers.push_back(
        {{"name", layer.name},
         {"shape",
          std::vector<std::int64_t>(layer.shape.begin(), layer.shape.end())},
         {"role", layer.role},
         {"scheme", layer.scheme.empty() ? "dense" : layer.scheme},
         {"dtype", layer.dtype},
         {"bytes", layer.bytes}});
  }
  return {{"family", report.family},
          {"architecture", report.architecture},
          {"format", report.format},
          {"parameters", report.parameters},
          {"active_parameters", report.active_parameters},
          {"bytes", report.bytes},
          {"bits_per_weight", report.bits_per_weight},
          {"files", report.files},
          {"layers", std::move(layers)}};
}

}  // namespace nibble::quant
