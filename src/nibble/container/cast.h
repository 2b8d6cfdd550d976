#pragma once

#include <memory>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// A checkpoint whose weights (F32, F16, BF16) appear in another of these types,
// rounded to the nearest on reading; everything else is as it is.
// Thread-safe as the source is.
class CastReader final : public CheckpointReader {
 public:
  CastReader(std::shared_ptr<const CheckpointReader> source, DType to);

  [[nodiscard]] std::span<const TensorInfo> tensors() const override {
    return infos_;
  }

  [[nodiscard]] const std::map<std::string, std::string>& metadata()
      const override {
    return source_->metadata();
  }

  [[nodiscard]] std::span<const std::filesystem::path> files() const override {
    return source_->files();
  }

  // kUnsupported for a value that the type cannot hold.
  void read(const TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override;
  // Only tensors that are not converted.
  [[nodiscard]] std::optional<Tensor> map(
      const TensorInfo& tensor) const override;
  void drop_cache(const TensorInfo& tensor,
                  std::uint64_t offset,
                  std::uint64_t bytes) const override;

 private:
  // The same tensor of the source.
  [[nodiscard]] const TensorInfo& original(const TensorInfo& tensor) const;

  std::shared_ptr<const CheckpointReader> source_;
  std::vector<TensorInfo> infos_;  // beside those of the source
};

}  // namespace nibble::container
