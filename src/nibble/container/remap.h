#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// Consecutive or evenly spaced elements of a tensor of another reader.
struct SourceRun {
  const CheckpointReader* reader = nullptr;
  const TensorInfo* tensor = nullptr;
  std::int64_t first = 0;  // element
  std::int64_t count = 0;
  std::int64_t stride = 1;  // elements
};

// A tensor put together from parts of others of the same dtype: joined or cut
// shards, permuted rows, stacked matrices. A row is one vector along the last
// dimension, counted over all others.
struct RemappedTensor {
  TensorInfo info;
  // Appends the runs that make up a row, in order.
  std::function<void(std::int64_t row, std::vector<SourceRun>& runs)> row;
  // Tensors that it has parts of, where whoever made the view tells.
  std::vector<const TensorInfo*> from = {};
};

// A checkpoint that exists as a view: its tensors are read through to where
// their elements are. Nothing is copied or read on construction. Thread-safe
// as its sources are.
class RemappedReader : public CheckpointReader {
 public:
  // sources must hold every reader that a row function names.
  RemappedReader(std::vector<std::shared_ptr<const CheckpointReader>> sources,
                 std::vector<RemappedTensor> tensors,
                 std::map<std::string, std::string> metadata);

  [[nodiscard]] std::span<const TensorInfo> tensors() const override {
    return infos_;
  }

  [[nodiscard]] const std::map<std::string, std::string>& metadata()
      const override {
    return metadata_;
  }

  [[nodiscard]] std::span<const std::filesystem::path> files() const override {
    return files_;
  }

  // RemappedTensor::from of a tensor.
  [[nodiscard]] std::span<const TensorInfo* const> from(
      const TensorInfo& tensor) const {
    return mapping(tensor).from;
  }

  void read(const TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override;
  // Only tensors that lie in one piece in a source.
  [[nodiscard]] std::optional<Tensor> map(
      const TensorInfo& tensor) const override;
  void drop_cache(const TensorInfo& tensor,
                  std::uint64_t offset,
                  std::uint64_t bytes) const override;

 private:
  [[nodiscard]] const RemappedTensor& mapping(const TensorInfo& tensor) const;
  // The runs of elements [first, first + count), neighbours merged.
  [[nodiscard]] std::vector<SourceRun> runs_of(const TensorInfo& tensor,
                                               std::int64_t first,
                                               std::int64_t count) const;

  std::vector<std::shared_ptr<const CheckpointReader>> sources_;
  std::vector<RemappedTensor> mappings_;
  std::vector<TensorInfo> infos_;  // beside mappings_
  std::map<std::string, std::string> metadata_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace nibble::container
