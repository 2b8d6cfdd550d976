#include "nibble/cli/screen/plan_text.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/cli/screen/table.h"
#include "nibble/model/family.h"

namespace nibble::cli {
namespace {

using container::TensorInfo;
using quant::Plan;
using quant::PlannedLayer;
using quant::PlannedTensor;

std::uint64_t bytes_of(const PlannedLayer& layer) {
  std::uint64_t bytes = 0;
  for (const TensorInfo& output : layer.outputs) {
    bytes += output.bytes;
  }
  return bytes;
}

// What a line of the folded plan stands for.
struct Group {
  std::vector<int> layers;  // of the decoder; empty outside of it
  std::int64_t count = 0;   // matrices, or tensors that are copied
  std::uint64_t source_bytes = 0;
  std::uint64_t bytes = 0;
  std::int64_t parameters = 0;

  void add(int layer,
           std::uint64_t from,
           std::uint64_t to,
           std::int64_t elements) {
    if (layer >= 0 && (layers.empty() || layers.back() != layer)) {
      layers.push_back(layer);
    }
    ++count;
    source_bytes += from;
    bytes += to;
    parameters += elements;
  }
};

// In the order of the model's parts; groups of a kind by what becomes of them.
using Groups = std::map<std::tuple<bool, int, std::string>, Group>;

std::string becomes(const PlannedTensor& planned) {
  std::string text(fate_name(planned.fate));
  return planned.reason.empty() ? text : text + ": " + planned.reason;
}

Groups groups_of(const Plan& plan, const load::CheckpointDirectory& source) {
  const model::Family& family = model::family_of(*source.config);
  const auto tensors = source.reader->tensors();
  Groups groups;
  for (const PlannedTensor& planned : plan.tensors) {
    const TensorInfo& tensor = tensors[planned.tensor];
    const model::TensorPlace place =
        model::place_of(family, *source.config, tensor.name, tensor.shape);
    const int role = static_cast<int>(place.role);
    if (planned.layers.empty()) {
      const std::uint64_t to =
          planned.fate == quant::Fate::kCopied ? tensor.bytes : 0;
      groups[{true, role, becomes(planned)}].add(
          place.layer, tensor.bytes, to, tensor.shape.elements());
      continue;
    }
    for (const std::size_t index : planned.layers) {
      const PlannedLayer& layer = plan.layers[index];
      const std::int64_t elements = layer.source.rows * layer.source.columns;
      groups[{!layer.spec,
              role,
              layer.spec ? describe(*layer.spec) : "dense, cut from a stack"}]
          .add(place.layer,
               static_cast<std::uint64_t>(elements) * dtype_bytes(tensor.dtype),
               bytes_of(layer),
               elements);
    }
  }
  return groups;
}

double bits(std::uint64_t bytes, std::int64_t parameters) {
  return parameters == 0
             ? 0
             : 8 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

std::string folded_table(const Plan& plan,
                         const load::CheckpointDirectory& source) {
  Table table({"what", "layers", "count", "becomes", "size", "from", "bits/w"});
  for (auto& [key, group] : groups_of(plan, source)) {
    const auto role = static_cast<model::Role>(std::get<1>(key));
    std::vector<int> layers = group.layers;
    std::sort(layers.begin(), layers.end());
    layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
    table.add({std::string(model::role_name(role)),
               layers.empty() ? "-" : fold_numbers(layers),
               std::to_string(group.count),
               std::get<2>(key),
               format_size(group.bytes),
               format_size(group.source_bytes),
               fmt::format("{:.2f}", bits(group.bytes, group.parameters))});
  }
  return table.text();
}

std::string full_table(const Plan& plan,
                       const load::CheckpointDirectory& source) {
  Table table({"tensor", "shape", "becomes", "size", "bits/w"});
  for (const PlannedTensor& planned : plan.tensors) {
    const TensorInfo& tensor = source.reader->tensors()[planned.tensor];
    if (planned.layers.empty()) {
      table.add(
          {printable(tensor.name),
           to_string(tensor.shape),
           becomes(planned),
           format_size(planned.fate == quant::Fate::kCopied ? tensor.bytes : 0),
           fmt::format("{:.2f}", bits(tensor.bytes, tensor.shape.elements()))});
    }
    for (const std::size_t index : planned.layers) {
      const PlannedLayer& layer = plan.layers[index];
      table.add(
          {printable(layer.module),
           fmt::format("({}, {})", layer.source.rows, layer.source.columns),
           layer.spec ? describe(*layer.spec) : "dense, cut from a stack",
           format_size(bytes_of(layer)),
           fmt::format("{:.2f}",
                       bits(bytes_of(layer),
                            layer.source.rows * layer.source.columns))});
    }
  }
  return table.text();
}

std::string time_text(const quant::TimeEstimate& time) {
  return fmt::format(
      "time         about {} with {} threads (from {} of the source's tiles "
      "and {} written to {}, in {:.1f} s)\n",
      format_seconds(time.seconds),
      time.threads,
      format_size(time.read_bytes),
      format_size(time.written_bytes),
      time.written_to.string(),
      time.probe_seconds);
}

// Engines with the same degrees share a line.
std::string parallel_text(const quant::Forecast& forecast) {
  std::vector<std::pair<std::string, const quant::EngineDegrees*>> lines;
  for (const quant::EngineDegrees& parallel : forecast.parallel) {
    if (!parallel.known) {
      continue;
    }
    const auto same =
        std::find_if(lines.begin(), lines.end(), [&](const auto& line) {
          return line.second->degrees.degrees == parallel.degrees.degrees;
        });
    if (same == lines.end()) {
      lines.emplace_back(parallel.engine, &parallel);
    } else {
      same->first += ", " + parallel.engine;
    }
  }
  std::string text;
  for (const auto& [engines, parallel] : lines) {
    text += fmt::format("ranks        {} ({})",
                        fmt::join(parallel->degrees.degrees, ", "),
                        engines);
    if (!parallel->degrees.refused.empty()) {
      const quant::RefusedDegree& refused = parallel->degrees.refused.front();
      text += fmt::format("; not {}: {}: {}",
                          refused.degree,
                          printable(refused.module),
                          refused.reason);
    }
    text += "\n";
  }
  if (!forecast.expert_degrees.empty()) {
    text += fmt::format("             whole experts over {}\n",
                        fmt::join(forecast.expert_degrees, ", "));
  }
  return text;
}

// The worst finding of each engine, or all of them.
std::string engines_text(const quant::Forecast& forecast, bool every_finding) {
  Table table({"engine", "verdict", "layers", "because"});
  for (const quant::EngineReport& report : forecast.engines) {
    if (report.findings.empty()) {
      table.add({report.engine,
                 std::string(verdict_name(report.verdict)),
                 "0",
                 "nothing is quantized"});
    }
    bool first = true;
    for (const quant::EngineFinding& finding : report.findings) {
      std::string because = finding.scheme;
      for (const std::string& part : {finding.needs, finding.reason}) {
        because += part.empty() ? "" : "; " + part;
      }
      if (finding.verdict != quant::Verdict::kAccepted) {
        because += fmt::format(" ({})", printable(finding.module));
      }
      table.add({first ? report.engine : "",
                 std::string(verdict_name(finding.verdict)),
                 std::to_string(finding.layers),
                 because});
      first = false;
      if (!every_finding) {
        break;
      }
    }
  }
  return table.text();
}

}  // namespace

std::string fold_numbers(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    // The longest run of equal steps from here.
    std::size_t last = i;
    int step = 0;
    if (i + 1 < numbers.size()) {
      step = numbers[i + 1] - numbers[i];
      last = i + 1;
      while (last + 1 < numbers.size() &&
             numbers[last + 1] - numbers[last] == step) {
        ++last;
      }
    }
    // Two or three numbers are a list, unless they follow each other.
    if (last - i < 3 && step != 1) {
      last = i;
    }
    text += text.empty() ? "" : ", ";
    text += std::to_string(numbers[i]);
    if (last > i) {
      text += fmt::format("-{}", numbers[last]);
      text += step == 1 ? "" : fmt::format(" step {}", step);
    }
    i = last + 1;
  }
  return text;
}

std::string plan_text(const Plan& plan,
                      const load::CheckpointDirectory& source,
                      const quant::Forecast& forecast,
                      bool every_tensor) {
  std::string text =
      every_tensor ? full_table(plan, source) : folded_table(plan, source);
  text += fmt::format(
      "\nsize         {} from {}, {:.3f} bits a weight\n"
      "disk         {} of {} free at {}{}; {} {}, and {} beside\n"
      "peak memory  {}\n",
      format_size(plan.output_bytes),
      format_size(plan.source_bytes),
      plan.bits_per_weight,
      format_size(plan.disk_bytes),
      format_size(forecast.free_bytes),
      forecast.disk.string(),
      plan.disk_bytes > forecast.free_bytes ? " (not enough)" : "",
      plan.shard_names.size(),
      plan.shard_names.size() == 1 ? "weight file" : "weight files",
      plan.side_files.size(),
      format_size(plan.peak_memory_bytes));
  text += forecast.time ? time_text(*forecast.time)
                        : "time         not measured: no weight that could be "
                          "encoded\n";
  text += parallel_text(forecast) + "\n" +
          engines_text(forecast, every_tensor || forecast.engines.size() < 3);
  for (const std::string& note : plan.notes) {
    text += "note: " + note + "\n";
  }
  return text;
}

}  // namespace nibble::cli
