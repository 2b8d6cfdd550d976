#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nibble::quant::meta {

// A packed tensor of one rank as the format's writing side names it:
// "rank<r>/<native name>", for a stack of routed experts followed by
// "*<experts>", since its shape alone does not tell their number.
struct ShardModule {
  std::string tensor;  // "rank3/layers.1.feed_forward.experts.moe_w_in_eD_F"
  std::string scales;  // "rank3/scales/<key>"
  bool stacked = false;
  std::int64_t experts = 1;

  // kInternal for any other form.
  static ShardModule parse(std::string_view module);
  // The module of a tensor; experts 0 for one that is no stack.
  static std::string name(std::int64_t rank,
                          std::string_view native,
                          std::int64_t experts);
};

}  // namespace nibble::quant::meta
