#include "nibble/container/checkpoint.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/base/units.h"

namespace nibble::container {

void CheckpointReader::index_names() {
  by_name_.clear();
  by_name_.reserve(tensors().size());
  for (const TensorInfo& tensor : tensors()) {
    by_name_.emplace_back(tensor.name, &tensor);
  }
  std::sort(by_name_.begin(), by_name_.end());
  const auto twice = std::adjacent_find(
      by_name_.begin(), by_name_.end(), [](const auto& a, const auto& b) {
        return a.first == b.first;
      });
  NIBBLE_CHECK(twice == by_name_.end(),
               kCorruptData,
               "tensor {}: found in {} and in {}, expected once",
               printable(twice->first),
               files()[twice->second->file].string(),
               files()[std::next(twice)->second->file].string());
}

std::size_t CheckpointReader::index_of(const TensorInfo& tensor) const {
  const std::span<const TensorInfo> all = tensors();
  const std::less<const TensorInfo*> before;
  const bool own = !all.empty() && !before(&tensor, &all.front()) &&
                   !before(&all.back(), &tensor);
  const TensorInfo& known = own ? tensor : get(tensor.name);
  return static_cast<std::size_t>(&known - all.data());
}

const TensorInfo* CheckpointReader::find(std::string_view name) const {
  const auto at = std::lower_bound(
      by_name_.begin(), by_name_.end(), name, [](const auto& a, auto b) {
        return a.first < b;
      });
  return at != by_name_.end() && at->first == name ? at->second : nullptr;
}

const TensorInfo& CheckpointReader::get(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    std::vector<std::string_view> names;
    for (const auto& entry : by_name_) {
      names.push_back(entry.first);
    }
    const std::string near = nearest_word(name, names);
    fail_with_hint(ErrorCode::kNotFound,
                   near.empty() ? "" : "the nearest name is " + near,
                   "tensor {}: found none of that name among {}",
                   printable(name),
                   names.size());
  }
  return *tensor;
}

Tensor CheckpointReader::load(const TensorInfo& tensor) const {
  std::optional<Tensor> mapped = map(tensor);
  return mapped ? std::move(*mapped) : load_copy(tensor);
}

Tensor CheckpointReader::load_copy(const TensorInfo& tensor) const {
  Tensor copy(tensor.dtype, tensor.shape);
  read(tensor, 0, copy.view().byte_span());
  return copy;
}

}  // namespace nibble::container
