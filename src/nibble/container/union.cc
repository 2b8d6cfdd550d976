#include "nibble/container/union.h"

#include <algorithm>
#include <utility>

namespace nibble::container {

UnionReader::UnionReader(std::vector<NamedReader> readers)
    : readers_(std::move(readers)) {
  for (const NamedReader& named : readers_) {
    // Readers may be views of the same files.
    std::vector<std::size_t> places;
    for (const std::filesystem::path& file : named.reader->files()) {
      const auto known = std::find(files_.begin(), files_.end(), file);
      places.push_back(static_cast<std::size_t>(known - files_.begin()));
      if (known == files_.end()) {
        files_.push_back(file);
      }
    }
    for (const TensorInfo& tensor : named.reader->tensors()) {
      places_.push_back({named.reader.get(), &tensor});
      infos_.push_back(tensor);
      infos_.back().name = named.prefix + tensor.name;
      infos_.back().file =
          tensor.file < places.size() ? places[tensor.file] : 0;
    }
    for (const auto& [key, text] : named.reader->metadata()) {
      metadata_[named.prefix + key] = text;
    }
  }
  index_names();
}

void UnionReader::read(const TensorInfo& tensor,
                       std::uint64_t offset,
                       std::span<std::byte> out) const {
  const Place& place = places_[index_of(tensor)];
  place.reader->read(*place.tensor, offset, out);
}

std::optional<Tensor> UnionReader::map(const TensorInfo& tensor) const {
  const Place& place = places_[index_of(tensor)];
  return place.reader->map(*place.tensor);
}

void UnionReader::drop_cache(const TensorInfo& tensor,
                             std::uint64_t offset,
                             std::uint64_t bytes) const {
  const Place& place = places_[index_of(tensor)];
  place.reader->drop_cache(*place.tensor, offset, bytes);
}

}  // namespace nibble::container
