#include "nibble/quant/pipeline/plan/plan.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/base/memory_budget.h"
#include "nibble/base/parallel.h"
#include "nibble/base/units.h"
#include "nibble/load/native/native_form.h"
#include "nibble/model/config_json.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/plan/config_edit.h"
#include "nibble/quant/pipeline/plan/engine_facts.h"
#include "nibble/quant/pipeline/plan/layout.h"
#include "nibble/quant/pipeline/plan/native_files.h"
#include "nibble/quant/pipeline/plan/output_place.h"
#include "nibble/quant/pipeline/plan/survey.h"
#include "nibble/quant/recipe/resolve.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

// Dense bytes move in pieces of this size; also the least budget that works.
constexpr std::uint64_t kCopyChunkBytes = 1 << 20;
// What the plan itself and the writer keep of one tensor: names, shapes.
constexpr std::uint64_t kPlanBytesPerTensor = 1024;
// Program, libraries and thread stacks, beside all buffers.
constexpr std::uint64_t kProgramBytes = 32 << 20;
// Receipt text a source tensor, and room for a file system's own needs.
constexpr std::uint64_t kReceiptBytesPerTensor = 1024;
constexpr std::uint64_t kDiskMarginBytes = 1 << 20;

void refuse_quantized(const nlohmann::json& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) {
      continue;
    }
    fail_with_hint(ErrorCode::kUnsupported,
                   "give the original checkpoint in 16 or 32 bits",
                   "config.json: {}: found a checkpoint that is already "
                   "quantized, expected a dense one",
                   key);
  }
}

bool is_tied(const nlohmann::json& config) {
  const auto tied = config.find("tie_word_embeddings");
  return tied != config.end() && tied->is_boolean() && tied->get<bool>();
}

// Stands for the algorithm of codes that are moved as they are.
constexpr const char* kMoved = "moved";

// The recipe of plain rewriting: no rule at all.
bool copies_all(const Recipe& recipe) {
  return recipe.rules.empty() && !recipe.defaults;
}

// Decides each module, and refuses what a format or scheme cannot do.
class Planner {
 public:
  Planner(const load::CheckpointDirectory& source,
          const Recipe& recipe,
          const QuantizeOptions& options)
      : source_(source),
        options_(options),
        survey_(survey(source)),
        format_(format_named(options.format)) {
    refuse_unknown_family(recipe);
    plan_.format = options.format;
    plan_.notes = options.notes;
    plan_.numerics = options.numerics;
    plan_.family = survey_.family->name;
    plan_.recipe_json = quant::to_json(recipe).dump();
    plan_.side_files = source.side_files;
    check_dtype(recipe);
    resolve_modules(recipe);
  }

  Plan take() {
    note_family();
    add_tensors();
    refuse_unless_accepted(options_.engines, model_facts(plan_, source_));
    if (source_.native != nullptr) {
      name_native_files(*source_.native, plan_);
    }
    lay_out(plan_, *source_.reader, options_.shard_bytes);
    plan_memory();
    plan_disk();
    plan_.config_text = source_.config_text;
    if (source_.native != nullptr) {
      plan_.params_text = source_.native->params_text;
    } else if (quantizes(plan_)) {
      plan_.config_text = with_entry(source_.config_text,
                                     format_.config_key(),
                                     format_.config_entry(plan_.decisions));
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] const TensorInfo& tensor(std::size_t index) const {
    return source_.reader->tensors()[index];
  }

  // Nothing says which weights of an unknown family must stay dense, so a
  // recipe that relies on it has no meaning there.
  void refuse_unknown_family(const Recipe& recipe) const {
    if (survey_.family->name != "plain" || !recipe.defaults) {
      return;
    }
    std::string known;
    for (const model::Family& family : model::families()) {
      for (const std::string_view architecture : family.architectures) {
        known += known.empty() ? "" : ", ";
        known += architecture;
      }
    }
    fail_with_hint(
        ErrorCode::kUnsupported,
        "a recipe with \"defaults\": false says by its own rules what becomes "
        "of every two-dimensional weight, and works for any architecture",
        "config.json: architectures: found {}, expected one of {}",
        printable(model::architecture_of(*source_.config)),
        known);
  }

  void check_dtype(const Recipe& recipe) const {
    for (const Module& module : survey_.modules) {
      const TensorInfo& weight = tensor(module.source.tensor);
      if (!recipe.dtype || weight.dtype == *recipe.dtype) {
        continue;
      }
      fail_with_hint(ErrorCode::kBadRecipe,
                     "convert the source first (nibble convert --dtype), or "
                     "leave dtype out of the recipe",
                     "tensor {}: found {}, expected {} by the recipe's dtype",
                     printable(weight.name),
                     dtype_name(weight.dtype),
                     dtype_name(*recipe.dtype));
    }
  }

  void resolve_modules(const Recipe& recipe) {
    std::vector<LinearModule> linears;
    linears.reserve(survey_.modules.size());
    for (const Module& module : survey_.modules) {
      linears.push_back({module.name,
                         module.role,
                         module.source.rows,
                         module.source.columns});
    }
    if (copies_all(recipe)) {
      resolved_.resize(linears.size());
      for (std::size_t i = 0; options_.codes && i < linears.size(); ++i) {
        resolved_[i].spec = options_.codes->spec_of(linears[i].module);
        resolved_[i].algorithm = kMoved;
      }
      return;
    }
    resolved_ = resolve(recipe, *survey_.family, linears);
    for (std::size_t i = 0; i < resolved_.size(); ++i) {
      const Module& module = survey_.modules[i];
      if (resolved_[i].spec) {
        resolved_[i].spec = format_.settled(*resolved_[i].spec,
                                            module.name,
                                            module.source.columns,
                                            tensor(module.source.tensor).dtype);
      }
    }
  }

  void note_family() {
    if (survey_.family->name == "plain") {
      plan_.notes.push_back(
          "unknown architecture: every two-dimensional *.weight counts as a "
          "linear, and nothing is known about the model's structure; `nibble "
          "generate` will not run it");
    }
    std::string note;
    if (source_.native != nullptr && !source_.native->packed.empty()) {
      plan_.packed = true;  // checked when it was opened
    } else if (source_.native != nullptr) {
      const container::CheckpointReader& whole = *source_.native->source;
      note = check_against_config(
          whole, *source_.config, survey(whole, *source_.config));
    } else {
      note = check_against_config(*source_.reader, *source_.config, survey_);
    }
    if (!note.empty()) {
      plan_.notes.push_back(std::move(note));
    }
  }

  void refuse_tied_head(const Module& module) const;
  void check_algorithm(const Module& module, std::string_view name) const;
  void refuse_mixed_stack(std::size_t first, std::size_t last) const;
  void add_layer(PlannedTensor& planned, std::size_t module);
  void add_tensor(std::size_t index, std::size_t first, std::size_t last);
  void add_tensors();
  void plan_memory();
  void plan_disk();

  const load::CheckpointDirectory& source_;
  const QuantizeOptions& options_;
  Survey survey_;
  const Format& format_;
  std::vector<Decision> resolved_;
  Plan plan_;
};

void Planner::refuse_tied_head(const Module& module) const {
  if (module.role != model::Role::kHead || !is_tied(*source_.config)) {
    return;
  }
  fail_with_hint(
      ErrorCode::kBadRecipe,
      "keep it, or let the rule name the embedding table, which the head then "
      "shares",
      "module {}: found a rule that quantizes it, but config.json ties it to "
      "the embedding, so that engines would ignore the result",
      printable(module.name));
}

void Planner::check_algorithm(const Module& module,
                              std::string_view name) const {
  if (name == kMoved) {
    return;
  }
  const Algorithm& algorithm = algorithm_named(name);
  NIBBLE_CHECK(
      algorithm.needs() == Needs::kNothing && algorithm.row_separable(),
      kUnsupported,
      "module {}: found algorithm {}, which needs calibration; "
      "expected one that works from weights alone",
      printable(module.name),
      name);
}

// Adds one matrix that is written apart from its tensor's other bytes.
void Planner::add_layer(PlannedTensor& planned, std::size_t module_index) {
  const Module& module = survey_.modules[module_index];
  const Decision& decision = resolved_[module_index];
  PlannedLayer layer;
  layer.module = module.name;
  layer.source = module.source;
  layer.spec = decision.spec;
  layer.algorithm = decision.algorithm;
  const std::int64_t rows = module.source.rows;
  const std::int64_t columns = module.source.columns;
  if (decision.spec) {
    with_context(printable(module.name),
                 [&] { format_.check(*decision.spec, rows, columns); });
    refuse_tied_head(module);
    check_algorithm(module, decision.algorithm);
    layer.outputs = format_.plan(module.name, *decision.spec, rows, columns);
  } else {
    const TensorInfo& stack = tensor(module.source.tensor);
    TensorInfo dense;
    dense.name = module.name + ".weight";
    dense.dtype = stack.dtype;
    dense.shape = {rows, columns};
    dense.bytes =
        static_cast<std::uint64_t>(rows * columns) * dtype_bytes(stack.dtype);
    layer.outputs.push_back(std::move(dense));
  }
  for (const TensorInfo& output : layer.outputs) {
    planned.outputs.push_back(output.name);
  }
  planned.layers.push_back(plan_.layers.size());
  plan_.layers.push_back(std::move(layer));
}

// Files of native layouts hold a stack in one type.
void Planner::refuse_mixed_stack(std::size_t first, std::size_t last) const {
  for (std::size_t i = first; i < last; ++i) {
    NIBBLE_CHECK(
        resolved_[i].spec == resolved_[first].spec,
        kUnsupported,
        "module {}: found another scheme than for {}, expected one for "
        "all experts of a tensor",
        printable(survey_.modules[i].name),
        printable(survey_.modules[first].name));
  }
}

// Decides the fate of a tensor whose modules are [first, last).
void Planner::add_tensor(std::size_t index,
                         std::size_t first,
                         std::size_t last) {
  const model::TensorPlace& place = survey_.places[index];
  const bool quantized = std::any_of(
      resolved_.begin() + static_cast<std::ptrdiff_t>(first),
      resolved_.begin() + static_cast<std::ptrdiff_t>(last),
      [](const Decision& module) { return module.spec.has_value(); });
  PlannedTensor planned;
  planned.tensor = index;
  planned.must_be_finite =
      place.role != model::Role::kOther && place.role != model::Role::kBuffer;
  for (std::size_t i = first; i < last; ++i) {
    const Module& module = survey_.modules[i];
    const bool embedding = module.role == model::Role::kEmbedding;
    if (embedding && !resolved_[i].spec) {
      continue;  // no linear: nothing needs to say that it is dense
    }
    plan_.decisions.push_back({module.name,
                               module.source.rows,
                               module.source.columns,
                               resolved_[i].spec,
                               embedding});
    if (embedding && is_tied(*source_.config)) {
      plan_.notes.push_back(fmt::format(
          "{}: the output head shares this table and computes from its codes; "
          "other programs may not: keep the table dense for these",
          module.name));
    }
    plan_.roles.push_back(module.role);
  }
  if (quantized && source_.native != nullptr) {
    refuse_mixed_stack(first, last);
  }
  if (quantized) {
    planned.fate = is_stack(place) ? Fate::kSplit : Fate::kQuantized;
    for (std::size_t i = first; i < last; ++i) {
      add_layer(planned, i);
    }
  } else {
    planned.fate = Fate::kCopied;
    planned.outputs.push_back(tensor(index).name);
    if (first < last) {
      planned.reason = resolved_[first].reason;
    }
  }
  plan_.tensors.push_back(std::move(planned));
}

void Planner::add_tensors() {
  const auto tensors = source_.reader->tensors();
  std::size_t first = 0;  // module of tensor i
  for (const std::size_t i : survey_.order) {
    std::size_t last = first;
    while (last < survey_.modules.size() &&
           survey_.modules[last].source.tensor == i) {
      ++last;
    }
    add_tensor(i, first, last);
    first = last;
    plan_.source_bytes += tensors[i].bytes;
    plan_.source_parameters += tensors[i].shape.elements();
    // Matrices that no rule reaches (vision towers) are linears to engines.
    const model::TensorPlace& place = survey_.places[i];
    if (!place.linear && place.role == model::Role::kVision &&
        place.part == "weight" && tensors[i].shape.rank() == 2) {
      plan_.decisions.push_back(
          {place.module, tensors[i].shape[0], tensors[i].shape[1], {}});
      plan_.roles.push_back(place.role);
    }
  }
  if (options_.source_size) {
    plan_.source_bytes = options_.source_size->bytes;
    plan_.source_parameters = options_.source_size->parameters;
  }
}

void Planner::plan_memory() {
  std::uint64_t smallest = kCopyChunkBytes;
  for (const PlannedLayer& layer : plan_.layers) {
    smallest = std::max(smallest,
                        tile_cost_bytes(plan_,
                                        layer,
                                        tensor(layer.source.tensor).dtype,
                                        tile_unit_rows(plan_, layer)));
  }
  std::uint64_t count = plan_.tensors.size();
  for (const auto& shard : plan_.shards) {
    count += shard.size();
  }
  const std::uint64_t own = count * kPlanBytesPerTensor;
  const std::uint64_t memory = options_.memory_bytes != 0
                                   ? options_.memory_bytes
                                   : available_memory_bytes() / 2;
  if (memory < own + smallest) {
    fail_with_hint(ErrorCode::kOverBudget,
                   fmt::format("give at least --memory {}KiB",
                               divide_up<std::uint64_t>(own + smallest, 1024)),
                   "memory limit: found {}, expected at least {} for one tile "
                   "of the largest matrix",
                   format_size(memory),
                   format_size(own + smallest));
  }
  plan_.buffer_bytes = memory - own;
  const int workers = thread_count();
  std::uint64_t largest = kCopyChunkBytes;
  for (const PlannedLayer& layer : plan_.layers) {
    const DType dtype = tensor(layer.source.tensor).dtype;
    largest = std::max(
        largest,
        tile_cost_bytes(
            plan_, layer, dtype, tile_rows(plan_, layer, dtype, workers)));
  }
  const auto tiles = static_cast<std::uint64_t>(workers) + 1;
  plan_.peak_memory_bytes =
      kProgramBytes + own + std::min(plan_.buffer_bytes, largest * tiles);
}

void Planner::plan_disk() {
  plan_.disk_bytes =
      kDiskMarginBytes +
      kReceiptBytesPerTensor * (plan_.tensors.size() + plan_.layers.size());
  for (const container::OutputFile& file : files_of(plan_)) {
    plan_.disk_bytes += container::overhead_bytes(plan_.file_kind, file);
  }
  plan_.disk_bytes += plan_.output_bytes;
  for (const std::filesystem::path& file : plan_.side_files) {
    plan_.disk_bytes += std::filesystem::file_size(source_.path / file);
  }
  if (!options_.output.empty()) {
    check_free_disk(options_.output, plan_.disk_bytes);
  }
}

}  // namespace

std::string_view fate_name(Fate fate) {
  switch (fate) {
    case Fate::kQuantized:
      return "quantized";
    case Fate::kCopied:
      return "copied";
    case Fate::kSplit:
      return "split";
    case Fate::kMerged:
      return "merged";
    case Fate::kDropped:
      break;
  }
  return "dropped";
}

bool quantizes(const Plan& plan) {
  return std::any_of(
      plan.layers.begin(), plan.layers.end(), [](const PlannedLayer& layer) {
        return layer.spec.has_value();
      });
}

Plan make_plan(const load::CheckpointDirectory& source,
               const Recipe& recipe,
               const QuantizeOptions& options) {
  refuse_quantized(*source.config);
  if (!options.output.empty()) {
    check_output_place(options.output, source.path, options.overwrite);
  }
  return Planner(source, recipe, options).take();
}

}  // namespace nibble::quant
