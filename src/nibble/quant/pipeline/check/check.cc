#include "nibble/quant/pipeline/check/check.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/hash/hash.h"
#include "nibble/base/parallel.h"
#include "nibble/container/tensor_part.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/execute/checksum.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

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

void check_codes(const TensorInfo& tensor,
                 std::uint64_t first_element,
                 std::span<const std::byte> bytes) {
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
}

// Every step-th number is a scale; what stands between them need be finite
// only.
void check_scales(const TensorInfo& tensor,
                  std::uint64_t first_element,
                  std::span<const std::byte> bytes,
                  std::size_t step) {
  std::vector<float> numbers(bytes.size() / dtype_bytes(tensor.dtype));
  convert_to_float(
      {bytes.data(), tensor.dtype, {static_cast<std::int64_t>(numbers.size())}},
      numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool scale = (first_element + i) % step == 0;
    if (!std::isfinite(numbers[i]) || (scale && !(numbers[i] > 0))) {
      bad_value(tensor,
                first_element + i,
                numbers[i],
                scale ? "finite scales above zero" : "finite offsets");
    }
  }
}

void check_chunk(const TensorInfo& tensor,
                 Format::Numbers numbers,
                 std::uint64_t first_element,
                 std::span<const std::byte> bytes) {
  switch (numbers) {
    case Format::Numbers::kAny:
      return;
    case Format::Numbers::kFp8Codes:
      check_codes(tensor, first_element, bytes);
      return;
    case Format::Numbers::kScales:
      check_scales(tensor, first_element, bytes, 1);
      return;
    case Format::Numbers::kPairs:
      check_scales(tensor, first_element, bytes, 2);
      return;
  }
}

// Something written, a tensor or a part of one, and what is known of it.
struct Written {
  std::string_view name;
  const std::string* checksum = nullptr;
  Format::Numbers numbers = Format::Numbers::kAny;
};

// Digest and numbers in one pass over the bytes. Returns their count.
std::uint64_t check_written(const CheckpointReader& reader,
                            const Written& written) {
  const container::PlacedPart part = container::find_part(reader, written.name);
  Hasher hasher;
  for_chunks(reader,
             part,
             [&](std::uint64_t offset, std::span<const std::byte> bytes) {
               hasher.update(bytes);
               check_chunk(*part.tensor,
                           written.numbers,
                           offset / dtype_bytes(part.tensor->dtype),
                           bytes);
             });
  const std::string checksum = hasher.digest();
  NIBBLE_CHECK(checksum == *written.checksum,
               kCheckFailed,
               "tensor {}: found checksum {} on disk, expected {}",
               printable(written.name),
               checksum,
               *written.checksum);
  return part.bytes;
}

// Every tensor that the plan writes stands in the files, and no other.
void check_headers(const Plan& plan,
                   const CheckpointReader& files,
                   const std::filesystem::path& directory) {
  std::size_t count = 0;
  for (const auto& shard : plan.shards) {
    count += shard.size();
    for (const TensorInfo& planned : shard) {
      const TensorInfo* found = files.find(planned.name);
      NIBBLE_CHECK(found != nullptr && found->dtype == planned.dtype &&
                       found->shape == planned.shape,
                   kCheckFailed,
                   "tensor {}: found {}, expected {} {}",
                   printable(planned.name),
                   found == nullptr ? "none" : to_string(found->shape),
                   dtype_name(planned.dtype),
                   to_string(planned.shape));
    }
  }
  NIBBLE_CHECK(count == files.tensors().size(),
               kCheckFailed,
               "{}: found {} tensors, expected {}",
               directory.string(),
               files.tensors().size(),
               count);
}

// Everything that the plan writes, in the order of items.
std::vector<Written> all_written(const Plan& plan,
                                 std::span<const ItemResult> results) {
  const Format& format = format_named(plan.format);
  std::vector<Written> written;
  const std::vector<Item> items = items_of(plan);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ItemResult& result = results[i];
    if (items[i].copy) {
      written.push_back({plan.tensors[items[i].index].outputs.front(),
                         &result.output_checksums.front(),
                         Format::Numbers::kAny});
      continue;
    }
    const PlannedLayer& layer = plan.layers[items[i].index];
    for (std::size_t j = 0; j < layer.outputs.size(); ++j) {
      written.push_back({layer.outputs[j].name,
                         &result.output_checksums[j],
                         layer.spec
                             ? format.numbers_in(*layer.spec, layer.outputs[j])
                             : Format::Numbers::kAny});
    }
  }
  return written;
}

}  // namespace

void check_numbers(const CheckpointReader& reader,
                   const TensorInfo& tensor,
                   Format::Numbers numbers) {
  if (numbers == Format::Numbers::kAny) {
    return;
  }
  for_chunks(reader,
             {&tensor, 0, tensor.bytes},
             [&](std::uint64_t offset, std::span<const std::byte> bytes) {
               check_chunk(
                   tensor, numbers, offset / dtype_bytes(tensor.dtype), bytes);
             });
}

load::CheckpointDirectory open_written(const std::filesystem::path& directory,
                                       std::string_view format) {
  load::CheckpointDirectory written = load::open_checkpoint(directory);
  const std::size_t slash = format.find('/');
  const auto entry = written.config->find("quantization_config");
  if (slash != std::string_view::npos && entry != written.config->end() &&
      !format.substr(slash).starts_with("/tiles")) {
    (*entry)["int4_layout"] = format.substr(slash + 1);
  }
  return written;
}

const CheckpointReader& tensors_in_files(
    const load::CheckpointDirectory& directory) {
  return directory.raw ? *directory.raw : *directory.reader;
}

void check_output(const Plan& plan,
                  std::span<const ItemResult> results,
                  const std::filesystem::path& directory,
                  Part part,
                  ProgressSink& progress,
                  const std::atomic<bool>& stop) {
  const load::CheckpointDirectory output = open_written(directory, plan.format);
  const CheckpointReader& files = tensors_in_files(output);
  const auto opened = open_quantized(*output.config, *output.reader);
  NIBBLE_CHECK((opened != nullptr) == (quantizes(plan) || plan.packed),
               kCheckFailed,
               "{}: found {} of quantized layers",
               directory.string(),
               opened ? "a declaration" : "no declaration");
  std::size_t layers = 0;
  for (const PlannedLayer& layer : plan.layers) {
    layers += layer.spec ? 1 : 0;
    NIBBLE_CHECK(!opened || opened->spec_of(layer.module) == layer.spec,
                 kCheckFailed,
                 "module {}: found another scheme declared than planned",
                 printable(layer.module));
  }
  const std::size_t declared = opened ? opened->stored_modules().size() : 0;
  NIBBLE_CHECK(declared == layers || plan.packed,
               kCheckFailed,
               "{}: found {} quantized layers, expected {}",
               directory.string(),
               declared,
               layers);
  check_headers(plan, files, directory);
  const std::vector<Written> written = all_written(plan, results);
  std::vector<Written> own;
  std::uint64_t bytes = 0;
  for (std::size_t i = part.number; i < written.size(); i += part.of) {
    own.push_back(written[i]);
    bytes += container::find_part(files, written[i].name).bytes;
  }
  progress.begin("checking", bytes);
  parallel_for(static_cast<std::int64_t>(own.size()),
               1,
               [&](std::int64_t i, std::int64_t) {
                 stop_if_asked(stop);
                 progress.advance(
                     check_written(files, own[static_cast<std::size_t>(i)]));
               });
  progress.end();
}

}  // namespace nibble::quant
