#include "nibble/container/remap.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "nibble/base/error.h"

namespace nibble::container {
namespace {

std::int64_t row_elements(const TensorInfo& tensor) {
  const std::size_t rank = tensor.shape.rank();
  return rank == 0 ? 1 : tensor.shape[rank - 1];
}

// Appends a run, or extends the last one when it continues it.
void append_run(std::vector<SourceRun>& runs, const SourceRun& run) {
  if (!runs.empty()) {
    SourceRun& last = runs.back();
    if (last.tensor == run.tensor && last.stride == 1 && run.stride == 1 &&
        last.first + last.count == run.first) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

// The part of a run behind its first `skip` elements, at most `count` long.
SourceRun cut(SourceRun run, std::int64_t skip, std::int64_t count) {
  run.first += skip * run.stride;
  run.count = std::min(run.count - skip, count);
  return run;
}

}  // namespace

RemappedReader::RemappedReader(
    std::vector<std::shared_ptr<const CheckpointReader>> sources,
    std::vector<RemappedTensor> tensors,
    std::map<std::string, std::string> metadata)
    : sources_(std::move(sources)),
      mappings_(std::move(tensors)),
      metadata_(std::move(metadata)) {
  for (const auto& source : sources_) {
    files_.insert(files_.end(), source->files().begin(), source->files().end());
  }
  for (const RemappedTensor& tensor : mappings_) {
    infos_.push_back(tensor.info);
    TensorInfo& info = infos_.back();
    info.bytes = static_cast<std::uint64_t>(info.shape.elements()) *
                 dtype_bytes(info.dtype);
  }
  index_names();
}

const RemappedTensor& RemappedReader::mapping(const TensorInfo& tensor) const {
  return mappings_[index_of(tensor)];
}

std::vector<SourceRun> RemappedReader::runs_of(const TensorInfo& tensor,
                                               std::int64_t first,
                                               std::int64_t count) const {
  std::vector<SourceRun> runs;
  if (count == 0) {
    return runs;
  }
  const RemappedTensor& map = mapping(tensor);
  const std::int64_t width = row_elements(tensor);
  std::vector<SourceRun> row;
  std::int64_t skip = first % width;
  for (std::int64_t r = first / width; count > 0; ++r) {
    row.clear();
    map.row(r, row);
    for (const SourceRun& run : row) {
      if (skip >= run.count) {
        skip -= run.count;
        continue;
      }
      const SourceRun part = cut(run, skip, count);
      skip = 0;
      append_run(runs, part);
      count -= part.count;
      if (count == 0) {
        break;
      }
    }
  }
  return runs;
}

void RemappedReader::read(const TensorInfo& tensor,
                          std::uint64_t offset,
                          std::span<std::byte> out) const {
  const std::size_t item = dtype_bytes(tensor.dtype);
  NIBBLE_CHECK(offset % item == 0 && out.size() % item == 0 &&
                   offset + out.size() <= tensor.bytes,
               kInternal,
               "tensor {}: found a read of {} bytes at {} of {}",
               printable(tensor.name),
               out.size(),
               offset,
               tensor.bytes);
  // Tensors read in strides (small: routers) are fetched whole, once.
  std::unordered_map<const TensorInfo*, Tensor> strided;
  for (const SourceRun& run :
       runs_of(tensor,
               static_cast<std::int64_t>(offset / item),
               static_cast<std::int64_t>(out.size() / item))) {
    const std::size_t bytes = static_cast<std::size_t>(run.count) * item;
    if (run.stride == 1) {
      run.reader->read(*run.tensor,
                       static_cast<std::uint64_t>(run.first) * item,
                       out.first(bytes));
    } else {
      auto found = strided.find(run.tensor);
      if (found == strided.end()) {
        found = strided.emplace(run.tensor, run.reader->load_copy(*run.tensor))
                    .first;
      }
      const Tensor& whole = found->second;
      for (std::int64_t i = 0; i < run.count; ++i) {
        std::memcpy(
            out.data() + static_cast<std::size_t>(i) * item,
            whole.view().data() +
                static_cast<std::size_t>(run.first + i * run.stride) * item,
            item);
      }
    }
    out = out.subspan(bytes);
  }
}

std::optional<Tensor> RemappedReader::map(const TensorInfo& tensor) const {
  const std::vector<SourceRun> runs =
      runs_of(tensor, 0, tensor.shape.elements());
  if (runs.size() != 1 || runs[0].stride != 1) {
    return std::nullopt;
  }
  std::optional<Tensor> source = runs[0].reader->map(*runs[0].tensor);
  if (!source) {
    return std::nullopt;
  }
  const auto owner = std::make_shared<const Tensor>(*std::move(source));
  return Tensor(ConstTensorView(owner->view().data() +
                                    static_cast<std::size_t>(runs[0].first) *
                                        dtype_bytes(tensor.dtype),
                                tensor.dtype,
                                tensor.shape),
                owner);
}

void RemappedReader::drop_cache(const TensorInfo& tensor,
                                std::uint64_t offset,
                                std::uint64_t bytes) const {
  const std::size_t item = dtype_bytes(tensor.dtype);
  for (const SourceRun& run :
       runs_of(tensor,
               static_cast<std::int64_t>(offset / item),
               static_cast<std::int64_t>(bytes / item))) {
    run.reader->drop_cache(*run.tensor,
                           static_cast<std::uint64_t>(run.first) * item,
                           static_cast<std::uint64_t>(run.count) * item);
  }
}

}  // namespace nibble::container
