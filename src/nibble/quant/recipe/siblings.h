#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "nibble/model/family.h"
#include "nibble/quant/recipe/resolve.h"

namespace nibble::quant {

// Linears that have to be treated alike, because engines make one matrix of
// them or look their scheme up once.
struct SiblingSet {
  std::string parent;                // "model.layers.0.self_attn"
  std::vector<std::size_t> members;  // indices into the linears
};

// Every fused set of the family (q, k, v; gate, up), as far as its members
// exist, and the experts of each layer. Sets of one member are left out.
[[nodiscard]] std::vector<SiblingSet> sibling_sets(
    const model::Family& family, std::span<const LinearModule> linears);

// kBadRecipe for a set whose members are not treated alike.
void check_siblings(std::span<const SiblingSet> sets,
                    std::span<const LinearModule> linears,
                    std::span<const Decision> decisions);

}  // namespace nibble::quant
