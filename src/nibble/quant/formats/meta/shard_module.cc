#include "nibble/quant/formats/meta/shard_module.h"

#include <charconv>

#include "nibble/base/error.h"
#include "nibble/container/tensor_part.h"

namespace nibble::quant::meta {

bool ShardModule::stacked() const {
  return native.find(".experts.moe_w_") != std::string::npos;
}

ShardModule ShardModule::parse(std::string_view module) {
  constexpr std::string_view kRank = "rank";
  const std::string_view tensor = container::TensorPart::parse(module).tensor;
  const std::size_t slash = tensor.find('/');
  NIBBLE_CHECK(tensor.starts_with(kRank) && slash != std::string_view::npos,
               kInternal,
               "module {}: found no tensor of a rank",
               printable(module));
  ShardModule shard;
  std::from_chars(
      tensor.data() + kRank.size(), tensor.data() + slash, shard.rank);
  shard.native = tensor.substr(slash + 1);
  shard.part = module.substr(tensor.size());
  return shard;
}

std::string ShardModule::name(std::int64_t rank,
                              std::string_view native,
                              std::int64_t expert,
                              std::int64_t experts) {
  const std::string tensor = fmt::format("rank{}/{}", rank, native);
  return experts == 0 ? tensor
                      : container::TensorPart::name(tensor, expert, experts);
}

}  // namespace nibble::quant::meta
