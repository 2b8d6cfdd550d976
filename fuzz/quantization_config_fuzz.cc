#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "fuzz_entry.h"
#include "nibble/base/error.h"
#include "nibble/base/files/json.h"
#include "nibble/quant/formats/compressed_tensors/format.h"
#include "nibble/quant/formats/compressed_tensors/memory_reader.h"

namespace {

using namespace nibble;         // NOLINT: a program, not a header
using namespace nibble::quant;  // NOLINT
using compressed_tensors::MemoryReader;

constexpr std::int64_t kMaxElements = 1 << 16;

// The tensors that the input lists beside its config: {"name": ["I32", [4,
// 8]]}. As a container's reader would, it gives each the bytes of its shape.
std::map<std::string, MemoryReader::Entry> tensors_of(
    const nlohmann::json& list) {
  std::map<std::string, MemoryReader::Entry> tensors;
  if (!list.is_object() || list.size() > 64) {
    return tensors;
  }
  for (const auto& [name, value] : list.items()) {
    if (!value.is_array() || value.size() != 2 || !value[0].is_string() ||
        !value[1].is_array() || value[1].size() > Shape::kMaxRank) {
      continue;
    }
    const auto dtype = dtype_from_name(value[0].get<std::string>());
    std::vector<std::int64_t> dims;
    std::int64_t elements = 1;
    for (const nlohmann::json& dim : value[1]) {
      const bool small =
          dim.is_number_unsigned() && dim.get<std::uint64_t>() <= kMaxElements;
      dims.push_back(small ? dim.get<std::int64_t>() : 1);
      elements = std::min(elements * dims.back(), kMaxElements + 1);
    }
    if (!dtype || dtype_bits(*dtype) < 8 || elements > kMaxElements) {
      continue;
    }
    const auto bytes = static_cast<std::size_t>(elements) * dtype_bytes(*dtype);
    MemoryReader::Entry entry = {*dtype, Shape(dims), {}};
    entry.bytes.assign(bytes, std::byte{0x3B});
    // The words of a shape are numbers of their own, not a pattern.
    if (name.ends_with("weight_shape") && bytes >= 16) {
      std::fill(entry.bytes.begin(), entry.bytes.end(), std::byte{0});
      entry.bytes[0] = std::byte{8};
      entry.bytes[8] = std::byte{64};
    }
    tensors.emplace(name, std::move(entry));
  }
  return tensors;
}

// A checkpoint that was accepted can be read to the end, and what we would
// write for its layers declares the same.
void check(const nlohmann::json& config, const MemoryReader& reader) {
  const Format& format = compressed_tensors_format();
  const auto opened = format.open(config, reader);
  if (opened == nullptr) {
    return;
  }
  std::vector<LayerDecision> layers;
  for (const std::string& module : opened->modules()) {
    const Shape shape = opened->weight_shape(module);
    const auto spec = opened->spec_of(module);
    fuzz_require(spec.has_value());
    layers.push_back({module, shape[0], shape[1], spec});
    fuzz_require(!opened->tensors_of(module).empty());
    try {
      const Quantized tile = opened->unpack(module, 0, shape[0]);
      fuzz_require(tile.codes.shape() == shape && tile.spec == spec->weight);
      static_cast<void>(opened->input_scale(module));
    } catch (const Error& error) {
      fuzz_require(error.code() == ErrorCode::kCorruptData);
    }
  }
  const nlohmann::json entry = format.config_entry(layers);
  fuzz_require(entry.at("quant_method") == "compressed-tensors");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const nlohmann::json input = parse_json(text, "input");
    const bool listed = input.is_object() && input.contains("tensors");
    const MemoryReader reader(
        tensors_of(listed ? input["tensors"] : nlohmann::json()));
    check(input, reader);
  } catch (const Error& error) {
    fuzz_require(error.code() != ErrorCode::kInternal);
  }
  return 0;
}
