#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nibble::quant::meta {

// A packed matrix of one rank as the format's writing side names it:
// "rank<r>/<native name>", and of an expert in a stack
// "rank<r>/<native name>[<expert>/<experts>]" (container/tensor_part.h).
struct ShardModule {
  std::int64_t rank = 0;
  std::string native;  // "layers.1.feed_forward.experts.moe_w_in_eD_F"
  std::string part;    // "[3/16]", or ""

  // Routed experts are stored input-major.
  [[nodiscard]] bool stacked() const;

  // kInternal for any other form.
  static ShardModule parse(std::string_view module);
  // The module of a tensor; experts 0 for one that is no stack.
  static std::string name(std::int64_t rank,
                          std::string_view native,
                          std::int64_t expert,
                          std::int64_t experts);
};

}  // namespace nibble::quant::meta
