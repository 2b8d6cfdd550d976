#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/hash/hash.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

json dims(const Shape& shape) {
  return json(std::vector<std::int64_t>(shape.begin(), shape.end()));
}

json layer_json(const Plan& plan, const PlannedLayer& layer) {
  json outputs = json::array();
  for (const container::TensorInfo& output : layer.outputs) {
    outputs.push_back({{"name", output.name},
                       {"dtype", dtype_name(output.dtype)},
                       {"shape", dims(output.shape)},
                       {"bytes", output.bytes},
                       {"file", plan.shard_names[output.file]}});
  }
  json result{{"module", layer.module},
              {"rows", layer.source.rows},
              {"columns", layer.source.columns},
              {"outputs", std::move(outputs)}};
  if (layer.spec) {
    result["scheme"] = describe(*layer.spec);
    result["algorithm"] = layer.algorithm;
    result["bits_per_weight"] = bits_per_weight(
        layer.spec->weight, layer.source.rows, layer.source.columns);
  }
  return result;
}

json tensor_json(const Plan& plan,
                 const PlannedTensor& planned,
                 const container::TensorInfo& info) {
  json entry{{"name", info.name},
             {"dtype", dtype_name(info.dtype)},
             {"shape", dims(info.shape)},
             {"bytes", info.bytes},
             {"fate", fate_name(planned.fate)}};
  if (!planned.reason.empty()) {
    entry["reason"] = planned.reason;
  }
  std::uint64_t bytes = planned.fate == Fate::kCopied ? info.bytes : 0;
  for (const std::size_t layer : planned.layers) {
    entry["layers"].push_back(layer_json(plan, plan.layers[layer]));
    for (const container::TensorInfo& output : plan.layers[layer].outputs) {
      bytes += output.bytes;
    }
  }
  entry["output_bytes"] = bytes;
  if (info.shape.elements() > 0) {
    entry["bits_per_weight"] = 8 * static_cast<double>(bytes) /
                               static_cast<double>(info.shape.elements());
  }
  return entry;
}

// All but the tensors.
json head_json(const Plan& plan) {
  json side_files = json::array();
  for (const std::filesystem::path& file : plan.side_files) {
    side_files.push_back(file.generic_string());
  }
  return {
      {"family", plan.family},
      {"format", plan.format},
      {"numerics", plan.numerics == Numerics::kExact ? "exact" : "reference"},
      {"recipe", json::parse(plan.recipe_json)},
      {"source_bytes", plan.source_bytes},
      {"parameters", plan.source_parameters},
      {"output_bytes", plan.output_bytes},
      {"disk_bytes", plan.disk_bytes},
      {"bits_per_weight", plan.bits_per_weight},
      {"peak_memory_bytes", plan.peak_memory_bytes},
      {"files", plan.shard_names},
      {"side_files", std::move(side_files)},
      {"notes", plan.notes}};
}

// Changes when a file does, without reading it.
json state_of(const std::filesystem::path& file) {
  const auto time = std::filesystem::last_write_time(file);
  return {file.filename().string(),
          std::filesystem::file_size(file),
          time.time_since_epoch().count()};
}

}  // namespace

json to_json(const Plan& plan, const load::CheckpointDirectory& source) {
  json document = head_json(plan);
  json& tensors = document["tensors"] = json::array();
  for (const PlannedTensor& planned : plan.tensors) {
    tensors.push_back(
        tensor_json(plan, planned, source.reader->tensors()[planned.tensor]));
  }
  return document;
}

std::string plan_hash(const Plan& plan,
                      const load::CheckpointDirectory& source) {
  json key = head_json(plan);
  for (const char* varying : {"peak_memory_bytes", "disk_bytes", "notes"}) {
    key.erase(varying);
  }
  key["version"] = NIBBLE_VERSION;
  key["config"] = plan.config_text;
  key["params"] = plan.params_text;
  for (const std::filesystem::path& file : source.reader->files()) {
    key["source"].push_back(state_of(file));
  }
  const auto replace = json::error_handler_t::replace;
  Hasher hasher;
  hasher.update(key.dump(-1, ' ', false, replace));
  for (const PlannedTensor& planned : plan.tensors) {
    const json tensor =
        tensor_json(plan, planned, source.reader->tensors()[planned.tensor]);
    hasher.update(tensor.dump(-1, ' ', false, replace));
  }
  return hasher.digest();
}

std::string content_key(const Plan& plan,
                        const load::CheckpointDirectory& source) {
  json key = {{"plan", plan_hash(plan, source)}};
  for (const std::filesystem::path& file : source.side_files) {
    json state = state_of(source.path / file);
    state[0] = file.generic_string();
    key["side_files"].push_back(std::move(state));
  }
  Hasher hasher;
  hasher.update(key.dump(-1, ' ', false, json::error_handler_t::replace));
  return hasher.digest();
}

}  // namespace nibble::quant
