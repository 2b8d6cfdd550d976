#include "nibble/quant/pipeline/plan/survey.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/container/tensor_part.h"
#include "nibble/load/native/native_form.h"
#include "nibble/model/config.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

// Modules of a stack (experts, in, sum of columns), expert by expert.
void add_stack(std::size_t index,
               const TensorInfo& tensor,
               const model::TensorPlace& place,
               std::vector<Module>& modules) {
  const std::int64_t experts = tensor.shape[0];
  const std::int64_t in = tensor.shape[1];
  const std::int64_t stride = tensor.shape[2];
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    for (const model::StackedPart& part : place.stacked) {
      modules.push_back(
          {fmt::format("{}.{}.{}", place.stack_module, expert, part.projection),
           {.tensor = index,
            .rows = part.columns,
            .columns = in,
            .transposed = true,
            .offset_elements = expert * in * stride + part.first_column,
            .stride_elements = stride},
           place.role});
    }
  }
}

void add_modules(std::size_t index,
                 const TensorInfo& tensor,
                 const model::TensorPlace& place,
                 std::vector<Module>& modules) {
  refuse_unless_weight_dtype(tensor);
  NIBBLE_CHECK(tensor.shape.elements() > 0,
               kCorruptData,
               "tensor {}: found shape {}, expected rows and columns",
               printable(tensor.name),
               to_string(tensor.shape));
  if (is_stack(place)) {
    add_stack(index, tensor, place, modules);
    return;
  }
  modules.push_back({place.module,
                     {.tensor = index,
                      .rows = tensor.shape[0],
                      .columns = tensor.shape[1],
                      .transposed = false,
                      .offset_elements = 0,
                      .stride_elements = tensor.shape[1]},
                     place.role});
}

// Tensors by name.
void order_tensors(const container::CheckpointReader& reader, Survey& result) {
  const auto tensors = reader.tensors();
  result.order.resize(tensors.size());
  std::iota(result.order.begin(), result.order.end(), std::size_t{0});
  std::sort(result.order.begin(),
            result.order.end(),
            [&](std::size_t a, std::size_t b) {
              return natural_less(tensors[a].name, tensors[b].name);
            });
}

// Adds the matrices that a tensor of a rank is made of: none, one, or one of
// each expert.
void add_native_modules(std::size_t index,
                        const TensorInfo& tensor,
                        const load::NativeForm& form,
                        std::int64_t experts,
                        std::vector<Module>& modules) {
  const std::string& name = tensor.name;
  if (tensor.shape.rank() != 2 || name.ends_with("/tok_embeddings.weight") ||
      name.ends_with(".router_DE")) {
    return;
  }
  const std::int64_t height = tensor.shape[0];
  const std::int64_t width = tensor.shape[1];
  if (name.find(".experts.moe_w_") == std::string::npos) {
    Module module{name, {}, model::Role::kMlp};
    if (form.layout == load::NativeLayout::kGptFast) {
      constexpr std::string_view kWeight = ".weight";
      module.name.resize(name.size() - kWeight.size());
    }
    module.source = {.tensor = index,
                     .rows = height,
                     .columns = width,
                     .transposed = false,
                     .offset_elements = 0,
                     .stride_elements = width};
    modules.push_back(std::move(module));
    return;
  }
  // Stacks are input-major: (experts * in, out).
  for (std::int64_t e = 0; e < experts; ++e) {
    modules.push_back({container::TensorPart::name(name, e, experts),
                       {.tensor = index,
                        .rows = width,
                        .columns = height / experts,
                        .transposed = true,
                        .offset_elements = e * (height / experts) * width,
                        .stride_elements = width},
                       model::Role::kMlp});
  }
}

}  // namespace

void refuse_unless_weight_dtype(const TensorInfo& tensor) {
  if (is_weight_dtype(tensor.dtype)) {
    return;
  }
  fail_with_hint(ErrorCode::kUnsupported,
                 "give the original checkpoint in 16 or 32 bits; one that is "
                 "already quantized cannot be quantized again",
                 "tensor {}: found a weight of type {}, expected BF16, F16 or "
                 "F32",
                 printable(tensor.name),
                 dtype_name(tensor.dtype));
}

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits = [&](std::string_view text) {
    const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
    return static_cast<std::size_t>(end - text.begin());
  };
  std::string_view x = a;
  std::string_view y = b;
  while (!x.empty() && !y.empty()) {
    if (is_digit(x.front()) && is_digit(y.front())) {
      const std::size_t m = digits(x);
      const std::size_t n = digits(y);
      // Without leading zeros the longer number is the greater one.
      if (m != n || x.substr(0, m) != y.substr(0, n)) {
        return m != n ? m < n : x < y;
      }
      x.remove_prefix(m);
      y.remove_prefix(n);
    } else if (x.front() != y.front()) {
      return x.front() < y.front();
    } else {
      x.remove_prefix(1);
      y.remove_prefix(1);
    }
  }
  return x.size() < y.size();
}

bool is_stack(const model::TensorPlace& place) {
  return !place.stacked.empty();
}

Survey survey(const container::CheckpointReader& reader,
              const nlohmann::json& config) {
  Survey result;
  result.family = &model::family_of(config);
  const auto tensors = reader.tensors();
  result.places.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    result.places.push_back(
        model::place_of(*result.family, config, tensor.name, tensor.shape));
  }
  order_tensors(reader, result);
  const auto is_table = [&](std::size_t i) {
    const model::TensorPlace& place = result.places[i];
    return place.role == model::Role::kEmbedding && place.part == "weight" &&
           tensors[i].shape.rank() == 2 && is_weight_dtype(tensors[i].dtype);
  };
  for (const std::size_t i : result.order) {
    if (result.places[i].linear || is_table(i)) {
      add_modules(i, tensors[i], result.places[i], result.modules);
    }
  }
  return result;
}

Survey survey(const load::CheckpointDirectory& source) {
  if (source.native == nullptr) {
    return survey(*source.reader, *source.config);
  }
  Survey result;
  result.family = &model::family_of(*source.config);
  const std::int64_t experts = model::parse_config(*source.config).experts;
  const auto tensors = source.reader->tensors();
  result.places.resize(tensors.size());
  order_tensors(*source.reader, result);
  if (!source.native->packed.empty()) {
    return result;  // codes that only move
  }
  for (const std::size_t i : result.order) {
    model::TensorPlace& place = result.places[i];
    // Every tensor of these layouts is a weight.
    place.role = model::Role::kMlp;
    const std::size_t before = result.modules.size();
    add_native_modules(i, tensors[i], *source.native, experts, result.modules);
    if (result.modules.size() > before) {
      refuse_unless_weight_dtype(tensors[i]);
      place.linear = true;
    }
  }
  return result;
}

}  // namespace nibble::quant
