#include "nibble/quant/formats/compressed_tensors/modules.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/model/family.h"
#include "nibble/quant/formats/compressed_tensors/bits/bits.h"

namespace nibble::quant::compressed_tensors {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

// Last parts of the names of tensors that only quantized modules have.
constexpr std::array<std::string_view, 9> kQuantized = {"weight_packed",
                                                        "weight_scale",
                                                        "weight_zero_point",
                                                        "weight_shape",
                                                        "weight_g_idx",
                                                        "weight_global_scale",
                                                        "input_scale",
                                                        "input_zero_point",
                                                        "input_global_scale"};
// Scales of attention and of the key/value cache; old files have output_scale.
constexpr std::array<std::string_view, 4> kCache = {
    "k_scale", "v_scale", "q_scale", "output_scale"};

template <std::size_t n>
bool is_in(std::string_view word,
           const std::array<std::string_view, n>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Tensors by the last part of their names.
using Tensors = std::map<std::string_view, const TensorInfo*>;

bool is_quantized(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) {
    const auto& [part, tensor] = entry;
    return is_in(part, kQuantized) ||
           (part == "weight" &&
            (tensor->dtype == DType::kI8 || tensor->dtype == DType::kF8E4M3));
  });
}

// Whether the module could be a linear layer that is stored dense.
bool is_dense_matrix(const Tensors& tensors) {
  const auto weight = tensors.find("weight");
  return weight != tensors.end() && weight->second->shape.rank() == 2;
}

std::map<std::string_view, Tensors> group_by_module(
    const CheckpointReader& reader) {
  std::map<std::string_view, Tensors> modules;
  for (const TensorInfo& tensor : reader.tensors()) {
    const std::string_view name = tensor.name;
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) {
      continue;
    }
    const std::string_view part = name.substr(dot + 1);
    NIBBLE_CHECK(!is_in(part, kCache),
                 kUnsupported,
                 "tensor {}: found a scale of a quantized key/value cache, "
                 "expected none",
                 printable(name));
    modules[name.substr(0, dot)].emplace(part, &tensor);
  }
  return modules;
}

std::string list_of(const Part& part) {
  std::string text = to_string(part.shape);
  for (const Shape& shape : part.also) {
    text += " or " + to_string(shape);
  }
  return text;
}

// Scales may be any float of 16 or 32 bits, weight_shape was once I32.
bool dtype_fits(const Part& part, DType dtype) {
  if (part.suffix == "weight_scale" || part.suffix == "input_scale") {
    return is_weight_dtype(dtype);
  }
  return dtype == part.dtype ||
         (part.suffix == "weight_shape" && dtype == DType::kI32);
}

void check_part(const Part& part, const TensorInfo& tensor) {
  const bool scale = is_weight_dtype(part.dtype);
  NIBBLE_CHECK(
      dtype_fits(part, tensor.dtype) && tensor.encoding.empty(),
      kCorruptData,
      "tensor {}: found dtype {}, expected {}",
      printable(tensor.name),
      dtype_name(tensor.dtype),
      scale ? std::string_view("BF16, F16 or F32") : dtype_name(part.dtype));
  const bool fits =
      tensor.shape == part.shape ||
      std::find(part.also.begin(), part.also.end(), tensor.shape) !=
          part.also.end();
  NIBBLE_CHECK(fits,
               kCorruptData,
               "tensor {}: found shape {}, expected {}",
               printable(tensor.name),
               to_string(tensor.shape),
               list_of(part));
}

const TensorInfo& required(const Tensors& tensors,
                           std::string_view part,
                           std::string_view module,
                           const Group& group) {
  const auto found = tensors.find(part);
  NIBBLE_CHECK(found != tensors.end(),
               kCorruptData,
               "tensor {}.{}: found none, expected one: "
               "quantization_config.config_groups.{} declares {} ({})",
               printable(module),
               part,
               printable(group.name),
               describe(*group.spec),
               group.format);
  return *found->second;
}

std::array<std::int64_t, 2> read_shape(const TensorInfo& tensor,
                                       const CheckpointReader& reader) {
  const bool wide = tensor.dtype == DType::kI64;
  NIBBLE_CHECK(
      tensor.shape == Shape{2} && (wide || tensor.dtype == DType::kI32),
      kCorruptData,
      "tensor {}: found {} {}, expected I64 (2)",
      printable(tensor.name),
      dtype_name(tensor.dtype),
      to_string(tensor.shape));
  std::array<std::int64_t, 2> shape{};
  if (wide) {
    reader.read(tensor, 0, std::as_writable_bytes(std::span(shape)));
  } else {
    std::array<std::int32_t, 2> narrow{};
    reader.read(tensor, 0, std::as_writable_bytes(std::span(narrow)));
    shape = {narrow[0], narrow[1]};
  }
  return shape;
}

// Rows and columns of packed codes. weight_shape alone tells how many codes of
// a row's last word count, so it must agree with the words to the last one.
void read_packed_shape(const TensorInfo& packed,
                       const TensorInfo& shape_tensor,
                       const CheckpointReader& reader,
                       Module& module) {
  const auto shape = read_shape(shape_tensor, reader);
  const bool matrix =
      packed.shape.rank() == 2 && packed.shape[0] > 0 && packed.shape[1] > 0;
  NIBBLE_CHECK(matrix,
               kCorruptData,
               "tensor {}: found shape {}, expected (rows, words)",
               printable(packed.name),
               to_string(packed.shape));
  const auto most = checked_multiply(
      packed.shape[1], std::int64_t{32 / module.spec.weight.bits});
  NIBBLE_CHECK(
      most && shape[0] == packed.shape[0] && shape[1] > 0 &&
          shape[1] <= *most &&
          words_for(shape[1], module.spec.weight.bits) == packed.shape[1],
      kCorruptData,
      "tensor {}: found ({}, {}), expected {} rows and columns that fill the "
      "{} words of weight_packed",
      printable(shape_tensor.name),
      shape[0],
      shape[1],
      packed.shape[0],
      packed.shape[1]);
  module.rows = shape[0];
  module.columns = shape[1];
}

void read_plain_shape(const TensorInfo& weight, Module& module) {
  const bool matrix =
      weight.shape.rank() == 2 && weight.shape[0] > 0 && weight.shape[1] > 0;
  if (!matrix) {
    fail_with_hint(ErrorCode::kUnsupported,
                   weight.shape.rank() == 3
                       ? "stacked experts are read one by one, as "
                         "experts.N.gate_proj.weight and so on"
                       : "",
                   "tensor {}: found shape {}, expected (rows, columns)",
                   printable(weight.name),
                   to_string(weight.shape));
  }
  module.rows = weight.shape[0];
  module.columns = weight.shape[1];
}

void place_part(std::string_view suffix,
                const TensorInfo& tensor,
                Module& module) {
  if (suffix == "weight" || suffix == "weight_packed") {
    module.codes = &tensor;
  } else if (suffix == "weight_scale") {
    module.scales = &tensor;
  } else if (suffix == "weight_zero_point") {
    module.zeros = &tensor;
  } else if (suffix == "weight_shape") {
    module.shape = &tensor;
  } else {
    module.input_scale = &tensor;
  }
}

Module read_module(std::string_view name,
                   const Tensors& tensors,
                   const Group& group,
                   const CheckpointReader& reader) {
  Module module;
  module.spec = *group.spec;
  module.storage = storage_of(group.format);
  const bool packed = module.storage == Storage::kPacked;
  const TensorInfo& codes =
      required(tensors, packed ? "weight_packed" : "weight", name, group);
  if (packed) {
    read_packed_shape(
        codes, required(tensors, "weight_shape", name, group), reader, module);
  } else {
    read_plain_shape(codes, module);
  }
  with_context(fmt::format("module {}", printable(name)),
               [&] { check_layer(module.spec, module.rows, module.columns); });
  std::size_t expected = 0;
  for (const Part& part :
       parts_of(module.spec, module.storage, module.rows, module.columns)) {
    const TensorInfo& tensor = required(tensors, part.suffix, name, group);
    check_part(part, tensor);
    place_part(part.suffix, tensor, module);
    ++expected;
  }
  module.spec.weight.scale_dtype = module.scales->dtype;
  if (tensors.size() - tensors.count("bias") != expected) {
    const std::vector<Part> parts =
        parts_of(module.spec, module.storage, module.rows, module.columns);
    for (const auto& [suffix, tensor] : tensors) {
      const bool known =
          suffix == "bias" ||
          std::ranges::find(parts, suffix, &Part::suffix) != parts.end();
      NIBBLE_CHECK(known,
                   kCorruptData,
                   "tensor {}: found one, expected none with {} ({})",
                   printable(tensor->name),
                   describe(module.spec),
                   group.format);
    }
  }
  return module;
}

// A dense matrix that the declaration calls quantized. A class reaches it only
// where modules of the same kind are quantized: an embedding is no Linear, but
// its tensor does not tell.
void check_dense(std::string_view name,
                 const Targets& targets,
                 const std::set<std::string_view>& quantized_kinds) {
  if (targets.ignored(name)) {
    return;
  }
  const auto hit = targets.find(name);
  if (!hit || !hit->group->spec ||
      (hit->by_class && !quantized_kinds.contains(model::last_part(name)))) {
    return;
  }
  fail_with_hint(
      ErrorCode::kCorruptData,
      "if it is meant to be dense, add it to quantization_config.ignore",
      "module {}: found a dense weight, expected {} ({}): the target '{}' of "
      "config_groups.{} fits it",
      printable(name),
      describe(*hit->group->spec),
      hit->group->format,
      printable(hit->target),
      printable(hit->group->name));
}

const Group& group_of_quantized(std::string_view name, const Targets& targets) {
  if (targets.ignored(name)) {
    fail_with_hint(
        ErrorCode::kCorruptData,
        "take it out of quantization_config.ignore",
        "module {}: found quantized tensors, expected a dense weight: "
        "quantization_config.ignore lists it",
        printable(name));
  }
  const auto hit = targets.find(name);
  NIBBLE_CHECK(hit && hit->group->spec,
               kCorruptData,
               "module {}: found quantized tensors, expected a dense weight: "
               "{}",
               printable(name),
               hit ? fmt::format("config_groups.{} quantizes no weights",
                                 printable(hit->group->name))
                   : "no target of quantization_config.config_groups fits it");
  return *hit->group;
}

}  // namespace

Modules find_modules(const Declaration& declaration,
                     const CheckpointReader& reader) {
  const Targets targets(declaration);
  const auto by_module = group_by_module(reader);
  Modules modules;
  std::set<std::string_view> quantized_kinds;
  for (const auto& [name, tensors] : by_module) {
    if (is_quantized(tensors)) {
      const Group& group = group_of_quantized(name, targets);
      modules.emplace(name, read_module(name, tensors, group, reader));
      quantized_kinds.insert(model::last_part(name));
    }
  }
  for (const auto& [name, tensors] : by_module) {
    if (!is_quantized(tensors) && is_dense_matrix(tensors)) {
      check_dense(name, targets, quantized_kinds);
    }
  }
  for (const std::string_view target : targets.exact_targets()) {
    NIBBLE_CHECK(by_module.contains(target),
                 kCorruptData,
                 "config.json: quantization_config.config_groups: found the "
                 "target '{}', expected a module that has tensors",
                 printable(target));
  }
  NIBBLE_CHECK(!modules.empty(),
               kCorruptData,
               "config.json: quantization_config: found a declaration, but no "
               "quantized module among {} tensors",
               reader.tensors().size());
  return modules;
}

}  // namespace nibble::quant::compressed_tensors
