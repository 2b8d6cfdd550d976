#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::quant::compressed_tensors {

// A checkpoint in memory, for tests and fuzzers.
class MemoryReader final : public container::CheckpointReader {
 public:
  struct Entry {
    DType dtype = DType::kF32;
    Shape shape;
    std::vector<std::byte> bytes;
  };

  explicit MemoryReader(std::map<std::string, Entry> entries)
      : entries_(std::move(entries)) {
    for (const auto& [name, entry] : entries_) {
      tensors_.push_back(
          {name, entry.dtype, entry.shape, entry.bytes.size(), "", 0});
    }
    index_names();
  }

  std::span<const container::TensorInfo> tensors() const override {
    return tensors_;
  }

  const std::map<std::string, std::string>& metadata() const override {
    return metadata_;
  }

  std::span<const std::filesystem::path> files() const override {
    return files_;
  }

  void read(const container::TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override {
    const auto& bytes = entries_.at(tensor.name).bytes;
    NIBBLE_CHECK(offset <= bytes.size() && out.size() <= bytes.size() - offset,
                 kInternal,
                 "tensor {}: found a read of bytes [{}, + {}) of {}",
                 tensor.name,
                 offset,
                 out.size(),
                 bytes.size());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                out.size(),
                out.begin());
  }

  std::optional<Tensor> map(
      const container::TensorInfo& /*tensor*/) const override {
    return std::nullopt;
  }

  void drop_cache(const container::TensorInfo& /*tensor*/,
                  std::uint64_t /*offset*/,
                  std::uint64_t /*bytes*/) const override {}

 private:
  std::map<std::string, Entry> entries_;
  std::vector<container::TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::filesystem::path> files_ = {"memory"};
};

}  // namespace nibble::quant::compressed_tensors
