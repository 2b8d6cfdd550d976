#include "nibble/quant/pipeline/check/receipt.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/json.h"
#include "nibble/base/hash/hash.h"
#include "nibble/load/native/native_form.h"
#include "nibble/quant/pipeline/plan/output_place.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

constexpr int kReceiptVersion = 1;
constexpr std::uint64_t kMaxReceiptBytes = std::uint64_t{1} << 30;

// Results by what they belong to.
struct ByOwner {
  std::map<std::size_t, const ItemResult*> tensors;  // copied ones
  std::vector<const ItemResult*> layers;
};

ByOwner by_owner(const Plan& plan, std::span<const ItemResult> results) {
  const std::vector<Item> items = items_of(plan);
  NIBBLE_CHECK(items.size() == results.size(),
               kInternal,
               "receipt: found {} results, expected {}",
               results.size(),
               items.size());
  ByOwner owner;
  owner.layers.resize(plan.layers.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].copy) {
      owner.tensors[items[i].index] = &results[i];
    } else {
      owner.layers[items[i].index] = &results[i];
    }
  }
  return owner;
}

void add_figures(json& entry, const ErrorSums& sums) {
  const ErrorFigures figures = figures_of(sums);
  entry["relative_mse"] = figures.relative_mse;
  entry["cosine"] = figures.cosine;
  entry["max_abs"] = figures.max_abs;
}

json output_entry(const container::TensorInfo& output,
                  const std::string& checksum) {
  return {{"name", output.name},
          {"dtype", dtype_name(output.dtype)},
          {"checksum", checksum}};
}

// Adds what was made of a tensor that is written matrix by matrix.
void add_layers(json& entry,
                const Plan& plan,
                std::span<const std::size_t> indices,
                const ByOwner& owner) {
  ErrorSums sums;
  std::set<std::string> schemes;
  json outputs = json::array();
  json layers = json::array();
  for (const std::size_t index : indices) {
    const PlannedLayer& layer = plan.layers[index];
    const ItemResult& result = *owner.layers[index];
    for (std::size_t i = 0; i < layer.outputs.size(); ++i) {
      outputs.push_back(
          output_entry(layer.outputs[i], result.output_checksums[i]));
    }
    json one{{"module", layer.module},
             {"source_checksum", result.source_checksum}};
    if (layer.spec) {
      one["scheme"] = describe(*layer.spec);
      one["algorithm"] = layer.algorithm;
      add_figures(one, result.sums);
      schemes.insert(describe(*layer.spec));
      sums += result.sums;
    }
    layers.push_back(std::move(one));
  }
  entry["outputs"] = std::move(outputs);
  entry["layers"] = std::move(layers);
  std::string scheme;
  for (const std::string& name : schemes) {
    scheme += (scheme.empty() ? "" : "; ") + name;
  }
  entry["scheme"] = scheme;
  add_figures(entry, sums);
}

// Name, type and shape of a source tensor, and what became of it.
json entry_head(const container::TensorInfo& info,
                Fate fate,
                const std::string& reason) {
  json entry{{"name", info.name},
             {"dtype", dtype_name(info.dtype)},
             {"shape",
              std::vector<std::int64_t>(info.shape.begin(), info.shape.end())},
             {"fate", fate_name(fate)}};
  if (!reason.empty()) {
    entry["reason"] = reason;
  }
  return entry;
}

json copied_output(const Plan& plan,
                   const load::CheckpointDirectory& source,
                   std::size_t index,
                   const ByOwner& owner) {
  return output_entry(source.reader->tensors()[plan.tensors[index].tensor],
                      owner.tensors.at(index)->source_checksum);
}

json tensor_entry(const Plan& plan,
                  const load::CheckpointDirectory& source,
                  std::size_t index,
                  const ByOwner& owner) {
  const PlannedTensor& planned = plan.tensors[index];
  json entry = entry_head(
      source.reader->tensors()[planned.tensor], planned.fate, planned.reason);
  if (planned.fate == Fate::kCopied) {
    entry["outputs"] = json::array({copied_output(plan, source, index, owner)});
  } else {
    add_layers(entry, plan, planned.layers, owner);
  }
  return entry;
}

// A tensor of the checkpoint from which the ranks of a native layout were made:
// parts are the planned tensors that it went into.
json native_entry(const Plan& plan,
                  const load::CheckpointDirectory& source,
                  std::size_t tensor,
                  const std::vector<std::size_t>& parts,
                  const ByOwner& owner) {
  const load::NativeForm& form = *source.native;
  std::vector<std::size_t> layers;
  json copies = json::array();
  bool merged = false;
  for (const std::size_t part : parts) {
    const PlannedTensor& planned = plan.tensors[part];
    merged = merged || form.from[planned.tensor].size() > 1;
    layers.insert(layers.end(), planned.layers.begin(), planned.layers.end());
    if (planned.fate == Fate::kCopied) {
      copies.push_back(copied_output(plan, source, part, owner));
    }
  }
  Fate fate = parts.size() == 1 ? Fate::kCopied : Fate::kSplit;
  if (!layers.empty()) {
    fate = Fate::kQuantized;
  } else if (merged) {
    fate = Fate::kMerged;
  }
  json entry = entry_head(form.source->tensors()[tensor], fate, {});
  entry["outputs"] = json::array();
  if (!layers.empty()) {
    add_layers(entry, plan, layers, owner);
  }
  for (json& copy : copies) {
    entry["outputs"].push_back(std::move(copy));
  }
  return entry;
}

// Entries for the tensors behind the ranks of a native layout.
std::vector<json> native_entries(const Plan& plan,
                                 const load::CheckpointDirectory& source,
                                 const ByOwner& owner) {
  const load::NativeForm& form = *source.native;
  std::vector<std::vector<std::size_t>> parts(form.source->tensors().size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    for (const std::size_t from : form.from[plan.tensors[i].tensor]) {
      parts[from].push_back(i);
    }
  }
  std::vector<json> entries;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].empty()) {
      entries.push_back(native_entry(plan, source, i, parts[i], owner));
    }
  }
  for (const load::NativeForm::Dropped& dropped : form.dropped) {
    entries.push_back(entry_head(form.source->tensors()[dropped.tensor],
                                 Fate::kDropped,
                                 dropped.reason));
  }
  return entries;
}

}  // namespace

std::string source_hash(const Plan& plan,
                        const load::CheckpointDirectory& source,
                        std::span<const ItemResult> results) {
  const ByOwner owner = by_owner(plan, results);
  std::map<std::string_view, std::string> lines;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& planned = plan.tensors[i];
    const container::TensorInfo& info =
        source.reader->tensors()[planned.tensor];
    std::string line = fmt::format(
        "{} {} {}", info.name, dtype_name(info.dtype), to_string(info.shape));
    if (planned.fate == Fate::kCopied) {
      line += " " + owner.tensors.at(i)->source_checksum;
    }
    for (const std::size_t layer : planned.layers) {
      line += " " + owner.layers[layer]->source_checksum;
    }
    lines[info.name] = line + "\n";
  }
  Hasher hasher;
  for (const auto& [name, line] : lines) {
    hasher.update(line);
  }
  return hasher.digest();
}

std::string receipt_text(const Plan& plan,
                         const load::CheckpointDirectory& source,
                         std::span<const ItemResult> results,
                         std::span<const CopiedFile> files,
                         FunctionRef<RunFigures()> figures) {
  const ByOwner owner = by_owner(plan, results);
  json copied = json::array();
  for (const CopiedFile& file : files) {
    copied.push_back({{"name", file.name},
                      {"bytes", file.bytes},
                      {"checksum", file.checksum}});
  }
  json head{
      {"version", kReceiptVersion},
      {"nibble", NIBBLE_VERSION},
      {"source",
       {{"path", source.path.string()},
        {"bytes", plan.source_bytes},
        {"parameters", plan.source_parameters},
        {"hash", source_hash(plan, source, results)}}},
      {"key", content_key(plan, source)},
      {"family", plan.family},
      {"recipe", json::parse(plan.recipe_json)},
      {"format", plan.format},
      {"numerics", plan.numerics == Numerics::kExact ? "exact" : "reference"},
      {"output_bytes", plan.output_bytes},
      {"bits_per_weight", plan.bits_per_weight},
      {"seconds", 0},
      {"peak_rss_bytes", 0},
      {"shards", plan.shard_names},
      {"notes", plan.notes},
      {"files", std::move(copied)}};
  const auto replace = json::error_handler_t::replace;
  std::string text = ",\n  \"tensors\": [";
  bool first = true;
  const auto add = [&](const json& entry) {
    text += first ? "\n    " : ",\n    ";
    text += entry.dump(-1, ' ', false, replace);
    first = false;
  };
  if (source.native != nullptr) {
    for (const json& entry : native_entries(plan, source, owner)) {
      add(entry);
    }
  } else {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      add(tensor_entry(plan, source, i, owner));
    }
  }
  // What a view of the source leaves out: Meta's leftovers of training.
  constexpr std::string_view kDropped = "dropped: ";
  const container::CheckpointReader& given =
      source.native != nullptr ? *source.native->source : *source.reader;
  for (const auto& [name, note] : given.metadata()) {
    if (note.starts_with(kDropped)) {
      add({{"name", name},
           {"fate", fate_name(Fate::kDropped)},
           {"reason", note.substr(kDropped.size())}});
    }
  }
  text += "\n  ]\n}\n";
  // Room for the head before the peak is taken, which counts all of this: for
  // 100,000 tensors the text is what the run needs most memory for.
  constexpr std::size_t kFiguresBytes = 64;
  text.reserve(text.size() + head.dump(2, ' ', false, replace).size() +
               kFiguresBytes);
  const RunFigures measured = figures();
  head["seconds"] = measured.seconds;
  head["peak_rss_bytes"] = measured.peak_rss_bytes;
  std::string start = head.dump(2, ' ', false, replace);
  start.erase(start.rfind("\n}"));
  text.insert(0, start);
  return text;
}

json read_receipt(const std::filesystem::path& directory) {
  return read_json_object(directory / kReceiptName, kMaxReceiptBytes);
}

}  // namespace nibble::quant
