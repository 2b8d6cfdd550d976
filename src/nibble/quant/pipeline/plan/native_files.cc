#include "nibble/quant/pipeline/plan/native_files.h"

#include <optional>
#include <string>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

void add_file(Plan& plan, std::string name, std::string prefix) {
  plan.shard_names.push_back(std::move(name));
  plan.shard_prefixes.push_back(std::move(prefix));
}

void name_meta_files(const load::NativeForm& form, Plan& plan) {
  std::string scheme = form.packed;
  for (const PlannedLayer& layer : plan.layers) {
    const std::string found = layer.spec->weight.scheme;
    NIBBLE_CHECK(scheme.empty() || scheme == found,
                 kUnsupported,
                 "module {}: found {} beside {}, expected one scheme: Meta's "
                 "directories have scale files of one kind",
                 printable(layer.module),
                 found,
                 scheme);
    scheme = found;
  }
  for (std::int64_t r = 0; r < form.ranks; ++r) {
    add_file(plan,
             fmt::format("consolidated.{:02}.pth", r),
             fmt::format("rank{}/", r));
  }
  for (std::int64_t r = 0; r < form.ranks && !scheme.empty(); ++r) {
    add_file(plan,
             fmt::format("{}_scales_{}.pt", scheme, r),
             fmt::format("rank{}/scales/", r));
  }
}

// gpt-fast's loader exchanges every linear, by one scheme.
void name_gpt_fast_file(Plan& plan) {
  std::optional<NumberSpec> spec;
  for (const PlannedLayer& layer : plan.layers) {
    const NumberSpec& found = layer.spec->weight;
    NIBBLE_CHECK(!spec || *spec == found,
                 kUnsupported,
                 "module {}: found {} beside {}, expected one scheme for all "
                 "linears: gpt-fast's loader knows no other",
                 printable(layer.module),
                 describe(*layer.spec),
                 describe({*spec, std::nullopt}));
    spec = found;
  }
  if (spec && plan.layers.size() != plan.decisions.size()) {
    fail(ErrorCode::kUnsupported,
         "recipe: found a scheme for {} of {} linears, expected one for all: "
         "gpt-fast's loader knows no other",
         plan.layers.size(),
         plan.decisions.size());
  }
  std::string name = "model.pth";
  if (spec) {
    name = spec->scheme == "int8"
               ? "model_int8.pth"
               : fmt::format("model_int4.g{}.pth", spec->group);
  }
  add_file(plan, std::move(name), "rank0/");
}

}  // namespace

void name_native_files(const load::NativeForm& form, Plan& plan) {
  plan.file_kind = container::FileKind::kTorch;
  if (form.layout == load::NativeLayout::kMeta) {
    name_meta_files(form, plan);
  } else {
    name_gpt_fast_file(plan);
  }
}

}  // namespace nibble::quant
