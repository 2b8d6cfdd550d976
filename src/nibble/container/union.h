#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// A reader whose tensors appear under longer names.
struct NamedReader {
  std::string prefix;
  std::shared_ptr<const CheckpointReader> reader;
};

// Several checkpoints as one: each tensor is named by the prefix of its reader
// and its name there. Thread-safe as the readers are.
class UnionReader final : public CheckpointReader {
 public:
  // kCorruptData when two tensors come to have one name.
  explicit UnionReader(std::vector<NamedReader> readers);

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

  void read(const TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override;
  [[nodiscard]] std::optional<Tensor> map(
      const TensorInfo& tensor) const override;
  void drop_cache(const TensorInfo& tensor,
                  std::uint64_t offset,
                  std::uint64_t bytes) const override;

 private:
  struct Place {
    const CheckpointReader* reader = nullptr;
    const TensorInfo* tensor = nullptr;
  };

  std::vector<NamedReader> readers_;
  std::vector<Place> places_;  // beside infos_
  std::vector<TensorInfo> infos_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace nibble::container
