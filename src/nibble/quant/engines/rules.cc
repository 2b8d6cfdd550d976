#include "nibble/quant/engines/rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "nibble/base/error.h"
#include "nibble/base/units.h"

namespace nibble::quant {
namespace {

using std::string_view;

std::uint8_t grain_bit(Grain grain) {
  switch (grain) {
    case Grain::kTensor:
      return kByTensor;
    case Grain::kChannel:
    case Grain::kToken:
      return kByChannel;
    case Grain::kGroup:
      return kByGroup;
    case Grain::kBlock:
      break;
  }
  return kByBlock;
}

bool inputs_fit(InputKind kind, const LayerSpec& spec) {
  switch (kind) {
    case InputKind::kAny:
      return true;
    case InputKind::kNone:
      return !spec.input;
    case InputKind::kToken:
      return spec.input && spec.input->grain == Grain::kToken;
    case InputKind::kGroup:
      break;
  }
  return spec.input && spec.input->grain == Grain::kGroup;
}

template <typename T>
bool in_list(std::span<const T> list, const T& value) {
  return list.empty() ||
         std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAccepted:
      return "accepts";
    case Verdict::kUnknown:
      return "not known";
    case Verdict::kRefused:
      break;
  }
  return "refuses";
}

string_view module_kind_name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::kLinear:
      return "linears";
    case ModuleKind::kExpert:
      return "experts";
    case ModuleKind::kHead:
      return "head";
    case ModuleKind::kEmbedding:
      return "embedding";
    case ModuleKind::kRouter:
      break;
  }
  return "router";
}

ModuleKind module_kind_of(model::Role role) {
  switch (role) {
    case model::Role::kExpert:
      return ModuleKind::kExpert;
    case model::Role::kHead:
      return ModuleKind::kHead;
    case model::Role::kEmbedding:
      return ModuleKind::kEmbedding;
    case model::Role::kRouter:
      return ModuleKind::kRouter;
    default:
      return ModuleKind::kLinear;
  }
}

const EngineCuts& engine_named(string_view name) {
  std::vector<string_view> names;
  for (const EngineCuts& engine : engines()) {
    if (engine.engine == name) {
      return engine;
    }
    names.push_back(engine.engine);
  }
  const std::string near = nearest_word(name, names);
  fail_with_hint(ErrorCode::kInvalidArgument,
                 near.empty() ? "nibble engines shows what is known of them"
                              : fmt::format("did you mean {}?", near),
                 "engine: found {}, expected one of {}",
                 printable(name),
                 fmt::join(names, ", "));
}

bool fits(const EngineRule& rule,
          string_view family,
          string_view module,
          model::Role role,
          const LayerSpec& spec) {
  const NumberSpec& weight = spec.weight;
  const string_view last = module.substr(module.rfind('.') + 1);
  const bool symmetric = rule.symmetry != Symmetry::kAsymmetric;
  return rule.kind == module_kind_of(role) &&
         (rule.family.empty() || rule.family == family) &&
         in_list(rule.names, last) &&
         (rule.number.empty() ||
          rule.number == (weight.floating ? "fp8" : "int")) &&
         in_list(rule.bits, weight.bits) &&
         (rule.grains & grain_bit(weight.grain)) != 0 &&
         (weight.grain != Grain::kGroup ||
          in_list(rule.groups, weight.group)) &&
         (rule.symmetry == Symmetry::kAny || symmetric == weight.symmetric) &&
         inputs_fit(rule.inputs, spec);
}

std::string describe(const EngineRule& rule) {
  std::string text(rule.number.empty() ? "any number" : rule.number);
  if (!rule.bits.empty()) {
    text += fmt::format(" of {} bits", fmt::join(rule.bits, " or "));
  }
  if (rule.grains != kByAny) {
    std::vector<std::string> grains;
    if ((rule.grains & kByGroup) != 0) {
      grains.push_back(
          rule.groups.empty()
              ? "group"
              : fmt::format("group of {}", fmt::join(rule.groups, ", ")));
    }
    for (const auto& [bit, name] : {std::pair{kByChannel, "channel"},
                                    std::pair{kByTensor, "tensor"},
                                    std::pair{kByBlock, "block"}}) {
      if ((rule.grains & bit) != 0) {
        grains.emplace_back(name);
      }
    }
    text += fmt::format(" by {}", fmt::join(grains, " or "));
  }
  if (rule.symmetry != Symmetry::kAny) {
    text += rule.symmetry == Symmetry::kSymmetric ? ", symmetric"
                                                  : ", with zero points";
  }
  switch (rule.inputs) {
    case InputKind::kAny:
      break;
    case InputKind::kNone:
      text += ", weights alone";
      break;
    case InputKind::kToken:
      text += ", token inputs";
      break;
    case InputKind::kGroup:
      text += ", group inputs";
      break;
  }
  return text;
}

}  // namespace nibble::quant
