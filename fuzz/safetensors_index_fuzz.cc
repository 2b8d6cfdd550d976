#include <string>
#include <string_view>

#include "fuzz_entry.h"
#include "nibble/base/error.h"
#include "nibble/container/safetensors/index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using nibble::container::parse_safetensors_index;
  using nibble::container::SafetensorsIndex;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const SafetensorsIndex index = parse_safetensors_index(text);
    for (const auto& [tensor, file] : index.weight_map) {
      fuzz_require(!file.empty() && file.find('/') == std::string::npos);
    }
    const SafetensorsIndex again = parse_safetensors_index(
        nibble::container::serialize_safetensors_index(index));
    fuzz_require(again.weight_map == index.weight_map);
    fuzz_require(again.total_bytes == index.total_bytes);
  } catch (const nibble::Error&) {
  }
  return 0;
}
