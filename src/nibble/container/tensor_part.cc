#include "nibble/container/tensor_part.h"

#include <charconv>

#include <fmt/format.h>

namespace nibble::container {

TensorPart TensorPart::parse(std::string_view name) {
  const TensorPart whole{name};
  const std::size_t open = name.rfind('[');
  if (!name.ends_with(']') || open == std::string_view::npos) {
    return whole;
  }
  TensorPart part{name.substr(0, open)};
  const char* end = name.data() + name.size() - 1;
  const auto [slash, error] =
      std::from_chars(name.data() + open + 1, end, part.index);
  if (error != std::errc() || slash == end || *slash != '/') {
    return whole;
  }
  const auto [rest, second] = std::from_chars(slash + 1, end, part.count);
  return second == std::errc() && rest == end && part.index < part.count
             ? part
             : whole;
}

std::string TensorPart::name(std::string_view tensor,
                             std::int64_t index,
                             std::int64_t count) {
  return fmt::format("{}[{}/{}]", tensor, index, count);
}

PlacedPart find_part(const CheckpointReader& reader, std::string_view name) {
  const TensorPart part = TensorPart::parse(name);
  PlacedPart placed;
  placed.tensor = reader.find(part.tensor);
  if (placed.tensor != nullptr) {
    placed.bytes = placed.tensor->bytes / part.count;
    placed.offset = part.index * placed.bytes;
  }
  return placed;
}

}  // namespace nibble::container
