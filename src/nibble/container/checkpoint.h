#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/tensor/tensor.h"

namespace nibble::container {

// One tensor of a checkpoint, as its header describes it.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t bytes = 0;
  // "" = elements of dtype, row-major; else a block encoding that only a
  // format reads (GGUF).
  std::string encoding;
  // Index into CheckpointReader::files() of the file that holds it.
  std::size_t file = 0;
};

// A set of named tensors in one or more files. Opening reads and validates
// headers, never tensor data. All methods are const and thread-safe.
class CheckpointReader {
 public:
  virtual ~CheckpointReader() = default;

  // In order of (file, offset of the data).
  [[nodiscard]] virtual std::span<const TensorInfo> tensors() const = 0;
  // Text metadata of the files, merged ("format": "pt" ...).
  [[nodiscard]] virtual const std::map<std::string, std::string>& metadata()
      const = 0;
  // Files that hold tensor data, absolute or relative to where the reader was
  // opened.
  [[nodiscard]] virtual std::span<const std::filesystem::path> files()
      const = 0;

  // Bytes [offset, offset + out.size()) of a tensor. kIo, or kCorruptData when
  // the file shrank since it was opened.
  virtual void read(const TensorInfo& tensor,
                    std::uint64_t offset,
                    std::span<std::byte> out) const = 0;

  // The tensor without a copy, kept alive by the result; nothing when the
  // container cannot give one (compressed, or not aligned to its elements).
  [[nodiscard]] virtual std::optional<Tensor> map(
      const TensorInfo& tensor) const = 0;

  // Tells the system that cached pages of these bytes are not needed again.
  virtual void drop_cache(const TensorInfo& tensor,
                          std::uint64_t offset,
                          std::uint64_t bytes) const = 0;

  // The tensor of that name, or nullptr.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  // As find; kNotFound with the nearest name as a hint.
  [[nodiscard]] const TensorInfo& get(std::string_view name) const;
  // A whole tensor: mapped where possible, else read.
  [[nodiscard]] Tensor load(const TensorInfo& tensor) const;
  // A whole tensor copied into memory of this process.
  [[nodiscard]] Tensor load_copy(const TensorInfo& tensor) const;

 protected:
  // To be called once by every implementation when tensors() is complete.
  // Throws kCorruptData for a name that occurs twice.
  void index_names();
  // Index into tensors() of a tensor given by a caller, who may hold a copy of
  // its description. kNotFound for one of another reader.
  [[nodiscard]] std::size_t index_of(const TensorInfo& tensor) const;

 private:
  std::vector<std::pair<std::string_view, const TensorInfo*>> by_name_;
};

// One file of a set that is written: its name and its tensors in the order of
// their data.
struct OutputFile {
  std::string name;
  std::vector<TensorInfo> tensors;
  // In the file, tensors stand without this beginning of their names: files
  // of several ranks may hold tensors of the same name. "" in safetensors.
  std::string prefix = {};
};

// What becomes of files that are already there: replaced, or kept with the
// bytes of their tensors (a run that goes on where an earlier one stopped).
enum class ExistingFiles { kReplace, kContinue };

// A file set being written. Created with all TensorInfos, so that headers and
// sizes stand before any data; data may come in any order, from any thread.
class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;

  // Bytes at offset of a tensor given at creation.
  virtual void write(std::string_view name,
                     std::uint64_t offset,
                     std::span<const std::byte> data) = 0;
  // Bytes at offset of a tensor as they are in the file now: what an earlier
  // run left there before it could complete the file.
  virtual void read(std::string_view name,
                    std::uint64_t offset,
                    std::span<std::byte> out) const = 0;

  // Completes what depends on the data, such as checksums. To be called after
  // the last write and before sync; may be repeated.
  virtual void finish() {}

  // Makes everything written so far durable.
  virtual void sync() = 0;
};

}  // namespace nibble::container
