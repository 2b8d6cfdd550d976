#include "nibble/quant/recipe/siblings.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

std::string_view parent_of(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? std::string_view()
                                       : module.substr(0, dot);
}

bool is_number(std::string_view part) {
  return !part.empty() &&
         part.find_first_not_of("0123456789") == std::string_view::npos;
}

// "a.experts.7.gate_proj" -> "a.experts": what stands before the expert's
// number.
std::string_view experts_of(std::string_view module) {
  std::string_view parent = parent_of(module);
  while (!parent.empty() && !is_number(model::last_part(parent))) {
    parent = parent_of(parent);
  }
  return parent_of(parent);
}

// Which fused set of the family a name belongs to, or nothing.
std::optional<std::size_t> fused_set_of(const model::Family& family,
                                        std::string_view last) {
  for (std::size_t i = 0; i < family.fused.size(); ++i) {
    const auto set = family.fused[i];
    if (std::find(set.begin(), set.end(), last) != set.end()) {
      return i;
    }
  }
  return std::nullopt;
}

std::string treatment(const Decision& decision) {
  return decision.spec ? describe(*decision.spec) : "kept";
}

// ["*.self_attn.q_proj", "*.self_attn.k_proj"] of the members, for a rule.
std::string match_list(const SiblingSet& set,
                       std::span<const LinearModule> linears) {
  std::vector<std::string> patterns;
  for (const std::size_t member : set.members) {
    const std::string_view module = linears[member].module;
    std::string pattern = fmt::format(
        "\"*.{}.{}\"", model::last_part(set.parent), model::last_part(module));
    if (linears[member].role == model::Role::kExpert) {
      pattern = fmt::format("\"*.{}.*\"", model::last_part(set.parent));
    }
    if (std::find(patterns.begin(), patterns.end(), pattern) ==
        patterns.end()) {
      patterns.push_back(std::move(pattern));
    }
  }
  return fmt::format("[{}]", fmt::join(patterns, ", "));
}

}  // namespace

std::vector<SiblingSet> sibling_sets(const model::Family& family,
                                     std::span<const LinearModule> linears) {
  std::map<std::pair<std::string_view, std::size_t>, SiblingSet> sets;
  constexpr std::size_t kExperts = std::string_view::npos;
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const LinearModule& linear = linears[i];
    std::string_view parent = parent_of(linear.module);
    std::size_t kind = kExperts;
    if (linear.role == model::Role::kExpert) {
      parent = experts_of(linear.module);
    } else {
      const auto fused = fused_set_of(family, model::last_part(linear.module));
      if (!fused) {
        continue;
      }
      kind = *fused;
    }
    SiblingSet& set = sets[{parent, kind}];
    set.parent = std::string(parent);
    set.members.push_back(i);
  }
  std::vector<SiblingSet> result;
  for (auto& [key, set] : sets) {
    if (set.members.size() > 1) {
      result.push_back(std::move(set));
    }
  }
  return result;
}

void check_siblings(std::span<const SiblingSet> sets,
                    std::span<const LinearModule> linears,
                    std::span<const Decision> decisions) {
  for (const SiblingSet& set : sets) {
    const std::size_t first = set.members.front();
    const auto other = std::find_if(
        set.members.begin(), set.members.end(), [&](std::size_t member) {
          return decisions[member].spec != decisions[first].spec;
        });
    if (other == set.members.end()) {
      continue;
    }
    const bool experts = linears[first].role == model::Role::kExpert;
    fail_with_hint(
        ErrorCode::kBadRecipe,
        "let one rule decide all of them: \"match\": " +
            match_list(set, linears),
        "module {}: found {} as {} and {} as {}, expected the same for {}",
        set.parent,
        linears[first].module.substr(set.parent.size() + 1),
        treatment(decisions[first]),
        linears[*other].module.substr(set.parent.size() + 1),
        treatment(decisions[*other]),
        experts ? "every expert of a layer (engines look one of them up)"
                : "linears that engines fuse into one matrix");
  }
}

}  // namespace nibble::quant
