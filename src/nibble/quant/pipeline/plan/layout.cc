#include "nibble/quant/pipeline/plan/layout.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/container/safetensors/header.h"
#include "nibble/container/safetensors/index.h"
#include "nibble/container/tensor_part.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

// Fills shards one after the other.
class Shards {
 public:
  explicit Shards(std::uint64_t limit) : limit_(limit) {}

  // Number of the shard that takes tensor.
  std::size_t add(TensorInfo tensor) {
    if (shards_.empty() ||
        (bytes_ > 0 && tensor.bytes > limit_ - std::min(limit_, bytes_))) {
      shards_.emplace_back();
      bytes_ = 0;
    }
    bytes_ += tensor.bytes;
    tensor.file = shards_.size() - 1;
    shards_.back().push_back(std::move(tensor));
    return shards_.size() - 1;
  }

  std::vector<std::vector<TensorInfo>> take() { return std::move(shards_); }

 private:
  std::uint64_t limit_;
  std::uint64_t bytes_ = 0;
  std::vector<std::vector<TensorInfo>> shards_;
};

// Number of the torch file that a tensor belongs to.
std::size_t file_by_prefix(const Plan& plan, const std::string& name) {
  std::size_t best = plan.shard_prefixes.size();
  for (std::size_t i = 0; i < plan.shard_prefixes.size(); ++i) {
    const std::string& prefix = plan.shard_prefixes[i];
    if (name.starts_with(prefix) &&
        (best == plan.shard_prefixes.size() ||
         prefix.size() > plan.shard_prefixes[best].size())) {
      best = i;
    }
  }
  NIBBLE_CHECK(best < plan.shard_prefixes.size(),
               kInternal,
               "tensor {}: found no file that takes it",
               printable(name));
  return best;
}

// The tensor that an output is a part of, or itself.
TensorInfo whole_of(const TensorInfo& output) {
  const container::TensorPart part = container::TensorPart::parse(output.name);
  TensorInfo whole = output;
  whole.name = part.tensor;
  if (part.count > 1) {
    std::vector<std::int64_t> dims(output.shape.begin(), output.shape.end());
    dims.front() *= static_cast<std::int64_t>(part.count);
    whole.shape = Shape(std::span<const std::int64_t>(dims));
    whole.bytes *= part.count;
  }
  return whole;
}

// Calls put(tensor) for every output, which returns its file's number; once
// for outputs that are parts of one tensor, which follow each other.
template <typename Put>
void place_outputs(Plan& plan,
                   const container::CheckpointReader& source,
                   Put put) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.fate == Fate::kCopied) {
      put(source.tensors()[tensor.tensor]);
    }
    for (const std::size_t index : tensor.layers) {
      for (TensorInfo& output : plan.layers[index].outputs) {
        if (container::TensorPart::parse(output.name).index == 0) {
          put(whole_of(output));
        }
      }
    }
  }
}

void refuse_equal_names(const Plan& plan) {
  std::unordered_set<std::string_view> names;
  for (const auto& shard : plan.shards) {
    for (const TensorInfo& tensor : shard) {
      NIBBLE_CHECK(names.insert(tensor.name).second,
                   kCorruptData,
                   "tensor {}: found two sources for it, expected one",
                   printable(tensor.name));
    }
  }
}

// Tells every output its file.
void name_files(Plan& plan) {
  std::unordered_map<std::string_view, std::size_t> files;
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    for (const TensorInfo& tensor : plan.shards[i]) {
      files.emplace(tensor.name, i);
    }
  }
  for (PlannedLayer& layer : plan.layers) {
    for (TensorInfo& output : layer.outputs) {
      output.file = files.at(container::TensorPart::parse(output.name).tensor);
    }
  }
}

}  // namespace

void lay_out(Plan& plan,
             const container::CheckpointReader& source,
             std::uint64_t shard_bytes) {
  NIBBLE_CHECK(shard_bytes > 0,
               kInvalidArgument,
               "shard size: found 0, expected at least one byte");
  if (plan.file_kind == container::FileKind::kTorch) {
    plan.shards.assign(plan.shard_names.size(), {});
    place_outputs(plan, source, [&](TensorInfo tensor) {
      tensor.file = file_by_prefix(plan, tensor.name);
      plan.shards[tensor.file].push_back(std::move(tensor));
    });
  } else {
    Shards shards(shard_bytes);
    place_outputs(plan, source, [&](TensorInfo tensor) {
      shards.add(std::move(tensor));
    });
    plan.shards = shards.take();
    plan.shard_names.clear();
    for (std::size_t i = 0; i < plan.shards.size(); ++i) {
      container::sort_like_reference(plan.shards[i]);
      plan.shard_names.push_back(
          container::safetensors_file_name(i, plan.shards.size()));
    }
    plan.shard_prefixes.assign(plan.shards.size(), "");
  }
  refuse_equal_names(plan);
  name_files(plan);

  plan.output_bytes = 0;
  for (const auto& shard : plan.shards) {
    for (const TensorInfo& tensor : shard) {
      plan.output_bytes += tensor.bytes;
    }
  }
  plan.bits_per_weight = plan.source_parameters == 0
                             ? 0
                             : 8 * static_cast<double>(plan.output_bytes) /
                                   static_cast<double>(plan.source_parameters);
}

std::vector<container::OutputFile> files_of(const Plan& plan) {
  std::vector<container::OutputFile> files;
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    files.push_back(
        {plan.shard_names[i], plan.shards[i], plan.shard_prefixes[i]});
  }
  return files;
}

}  // namespace nibble::quant
