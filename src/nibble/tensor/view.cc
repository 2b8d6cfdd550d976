#include "nibble/tensor/view.h"

namespace nibble {

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + ")";
}

}  // namespace nibble
