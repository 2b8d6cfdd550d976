#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// One of several equal parts of a tensor, along its first dimension, named
// "<tensor>[<index>/<count>]": what a file stacks may be worked on apart. Any
// other name is that of a whole tensor.
struct TensorPart {
  std::string_view tensor;
  std::uint64_t index = 0;
  std::uint64_t count = 1;

  [[nodiscard]] static TensorPart parse(std::string_view name);
  [[nodiscard]] static std::string name(std::string_view tensor,
                                        std::int64_t index,
                                        std::int64_t count);
};

// A part inside its tensor.
struct PlacedPart {
  const TensorInfo* tensor = nullptr;  // the whole one
  std::uint64_t offset = 0;            // bytes
  std::uint64_t bytes = 0;
};

// The tensor or part of that name; its tensor is nullptr when there is none.
[[nodiscard]] PlacedPart find_part(const CheckpointReader& reader,
                                   std::string_view name);

}  // namespace nibble::container
