#include "nibble/quant/pipeline/check.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/function_ref.h"
#include "nibble/base/hash.h"
#include "nibble/base/parallel.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/registry.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

constexpr std::uint64_t kChunkBytes = 1 << 20;

// Hands over a tensor's bytes in order, in chunks of whole elements.
void for_chunks(
    const CheckpointReader& reader,
    const TensorInfo& tensor,
    FunctionRef<void(std::uint64_t offset, std::span<const std::byte>)> body) {
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min(tensor.bytes, kChunkBytes)));
  for (std::uint64_t at = 0; at < tensor.bytes; at += chunk.size()) {
    const auto bytes = std::span(chunk).first(static_cast<std::size_t>(
        std::min<std::uint64_t>(chunk.size(), tensor.bytes - at)));
    reader.read(tensor, at, bytes);
    body(at, bytes);
  }
}

[[noreturn]] void bad_value(const TensorInfo& tensor,
                            std::uint64_t element,
                            float value,
                            std::string_view expected) {
  fail(ErrorCode::kCheckFailed,
       "tensor {}: found {} at element {}, expected {}",
       printable(tensor.name),
       value,
       element,
       expected);
}

void check_chunk(const TensorInfo& tensor,
                 std::uint64_t first_element,
                 std::span<const std::byte> bytes) {
  if (tensor.dtype == DType::kF8E4M3) {
    const auto is_nan = [](std::byte code) {
      return (static_cast<std::uint8_t>(code) & 0x7FU) == 0x7FU;
    };
    // Without a way out of the loop, so that it uses vectors.
    std::byte found{0};
    for (const std::byte code : bytes) {
      found |= std::byte{is_nan(code)};
    }
    if (found != std::byte{0}) {
      const auto at = std::ranges::find_if(bytes, is_nan);
      bad_value(tensor,
                first_element + static_cast<std::uint64_t>(at - bytes.begin()),
                f8e4m3_to_float(0x7F),
                "codes that are no NaN");
    }
    return;
  }
  std::vector<float> scales(bytes.size() / dtype_bytes(tensor.dtype));
  convert_to_float(
      {bytes.data(), tensor.dtype, {static_cast<std::int64_t>(scales.size())}},
      scales);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (!(scales[i] > 0) || !std::isfinite(scales[i])) {
      bad_value(
          tensor, first_element + i, scales[i], "finite scales above zero");
    }
  }
}

bool holds_checked_values(const TensorInfo& tensor) {
  return is_weight_dtype(tensor.dtype) || tensor.dtype == DType::kF8E4M3;
}

// A written tensor and what is known of it.
struct Written {
  const TensorInfo* planned = nullptr;
  const std::string* checksum = nullptr;
  bool quantized = false;
};

// Digest and values in one pass over the bytes.
void check_tensor(const CheckpointReader& reader, const Written& written) {
  const TensorInfo& planned = *written.planned;
  const TensorInfo* found = reader.find(planned.name);
  NIBBLE_CHECK(found != nullptr && found->dtype == planned.dtype &&
                   found->shape == planned.shape,
               kCheckFailed,
               "tensor {}: found {}, expected {} {}",
               printable(planned.name),
               found == nullptr ? "none" : to_string(found->shape),
               dtype_name(planned.dtype),
               to_string(planned.shape));
  const bool values = written.quantized && holds_checked_values(planned);
  Hasher hasher;
  for_chunks(reader,
             *found,
             [&](std::uint64_t offset, std::span<const std::byte> bytes) {
               hasher.update(bytes);
               if (values) {
                 check_chunk(*found, offset / dtype_bytes(found->dtype), bytes);
               }
             });
  const std::string checksum = hasher.digest();
  NIBBLE_CHECK(checksum == *written.checksum,
               kCheckFailed,
               "tensor {}: found checksum {} on disk, expected {}",
               printable(planned.name),
               checksum,
               *written.checksum);
}

// Every tensor that the plan writes.
std::vector<Written> written_tensors(const Plan& plan,
                                     std::span<const ItemResult> results) {
  std::unordered_map<std::string_view, Written> by_name;
  const std::vector<Item> items = items_of(plan);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ItemResult& result = results[i];
    if (items[i].copy) {
      by_name[plan.tensors[items[i].index].outputs.front()] = {
          nullptr, &result.output_checksums.front(), false};
      continue;
    }
    const PlannedLayer& layer = plan.layers[items[i].index];
    for (std::size_t j = 0; j < layer.outputs.size(); ++j) {
      by_name[layer.outputs[j].name] = {
          nullptr, &result.output_checksums[j], layer.spec.has_value()};
    }
  }
  std::vector<Written> written;
  for (const auto& shard : plan.shards) {
    for (const TensorInfo& tensor : shard) {
      Written one = by_name.at(tensor.name);
      one.planned = &tensor;
      written.push_back(one);
    }
  }
  return written;
}

}  // namespace

std::string checksum_of(const container::CheckpointWriter& writer,
                        std::string_view name,
                        std::uint64_t bytes) {
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min(bytes, kChunkBytes)));
  Hasher hasher;
  for (std::uint64_t at = 0; at < bytes; at += chunk.size()) {
    const auto part = std::span(chunk).first(static_cast<std::size_t>(
        std::min<std::uint64_t>(chunk.size(), bytes - at)));
    writer.read(name, at, part);
    hasher.update(part);
  }
  return hasher.digest();
}

std::string checksum_of(const CheckpointReader& reader,
                        const TensorInfo& tensor) {
  Hasher hasher;
  for_chunks(
      reader, tensor, [&](std::uint64_t, std::span<const std::byte> bytes) {
        hasher.update(bytes);
      });
  return hasher.digest();
}

void check_values(const CheckpointReader& reader, const TensorInfo& tensor) {
  if (!holds_checked_values(tensor)) {
    return;
  }
  for_chunks(reader,
             tensor,
             [&](std::uint64_t offset, std::span<const std::byte> bytes) {
               check_chunk(tensor, offset / dtype_bytes(tensor.dtype), bytes);
             });
}

void check_output(const Plan& plan,
                  std::span<const ItemResult> results,
                  const std::filesystem::path& directory,
                  Part part,
                  ProgressSink& progress,
                  const std::atomic<bool>& stop) {
  const load::CheckpointDirectory output = load::open_checkpoint(directory);
  const auto opened = open_quantized(*output.config, *output.reader);
  NIBBLE_CHECK(opened != nullptr,
               kCheckFailed,
               "{}: found no declaration of quantized layers",
               directory.string());
  std::size_t layers = 0;
  for (const PlannedLayer& layer : plan.layers) {
    layers += layer.spec ? 1 : 0;
    NIBBLE_CHECK(opened->spec_of(layer.module) == layer.spec,
                 kCheckFailed,
                 "module {}: found another scheme declared than planned",
                 printable(layer.module));
  }
  NIBBLE_CHECK(opened->modules().size() == layers,
               kCheckFailed,
               "{}: found {} quantized layers, expected {}",
               directory.string(),
               opened->modules().size(),
               layers);
  const std::vector<Written> written = written_tensors(plan, results);
  NIBBLE_CHECK(written.size() == output.reader->tensors().size(),
               kCheckFailed,
               "{}: found {} tensors, expected {}",
               directory.string(),
               output.reader->tensors().size(),
               written.size());
  std::vector<Written> own;
  std::uint64_t bytes = 0;
  for (std::size_t i = part.number; i < written.size(); i += part.of) {
    own.push_back(written[i]);
    bytes += written[i].planned->bytes;
  }
  progress.begin("checking", bytes);
  parallel_for(static_cast<std::int64_t>(own.size()),
               1,
               [&](std::int64_t i, std::int64_t) {
                 stop_if_asked(stop);
                 const Written& one = own[static_cast<std::size_t>(i)];
                 check_tensor(*output.reader, one);
                 progress.advance(one.planned->bytes);
               });
  progress.end();
}

}  // namespace nibble::quant
