#include "nibble/quant/formats/meta/shard_module.h"

#include <charconv>

#include "nibble/base/error.h"

namespace nibble::quant::meta {

ShardModule ShardModule::parse(std::string_view module) {
  ShardModule shard;
  const std::size_t star = module.rfind('*');
  if (star != std::string_view::npos) {
    shard.stacked = true;
    const std::string_view count = module.substr(star + 1);
    std::from_chars(count.data(), count.data() + count.size(), shard.experts);
    module = module.substr(0, star);
  }
  const std::size_t slash = module.find('/');
  NIBBLE_CHECK(slash != std::string_view::npos && shard.experts > 0,
               kInternal,
               "module {}: found no tensor of a rank",
               printable(module));
  shard.tensor = module;
  shard.scales = fmt::format(
      "{}/scales/{}", module.substr(0, slash), module.substr(slash + 1));
  return shard;
}

std::string ShardModule::name(std::int64_t rank,
                              std::string_view native,
                              std::int64_t experts) {
  return experts == 0 ? fmt::format("rank{}/{}", rank, native)
                      : fmt::format("rank{}/{}*{}", rank, native, experts);
}

}  // namespace nibble::quant::meta
