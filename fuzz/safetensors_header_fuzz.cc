#include <string>
#include <string_view>

#include "fuzz_entry.h"
#include "nibble/base/error.h"
#include "nibble/container/safetensors/header.h"

namespace {

using nibble::container::parse_safetensors_header;
using nibble::container::SafetensorsHeader;
using nibble::container::serialize_safetensors_header;

// What every accepted header promises: data without holes up to the end of
// the file, and a text form that reads back as the same tensors.
void check(std::string_view text, std::uint64_t file_bytes) {
  const SafetensorsHeader header =
      parse_safetensors_header(text, file_bytes, 1000);
  std::uint64_t cursor = 8 + text.size();
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    fuzz_require(header.offsets[i] == cursor);
    cursor += header.tensors[i].bytes;
  }
  fuzz_require(cursor == file_bytes);

  const std::string written =
      serialize_safetensors_header(header.tensors, header.metadata);
  const std::uint64_t data_bytes = file_bytes - 8 - text.size();
  const SafetensorsHeader again = parse_safetensors_header(
      std::string_view(written).substr(8), written.size() + data_bytes, 1000);
  fuzz_require(again.metadata == header.metadata);
  fuzz_require(again.tensors.size() == header.tensors.size());
  std::size_t i = 0;
  for (const auto& tensor : header.tensors) {
    // Tensors without bytes at one place may come in another order.
    const auto& other = again.tensors[i++];
    fuzz_require(tensor.bytes == other.bytes);
    fuzz_require(tensor.bytes == 0 ||
                 (tensor.name == other.name && tensor.dtype == other.dtype &&
                  tensor.shape == other.shape));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {  // as a whole file
    const std::uint64_t length = nibble::container::safetensors_header_bytes(
        std::as_bytes(std::span(bytes)), size);
    check(bytes.substr(8, length), size);
  } catch (const nibble::Error&) {
  }
  try {  // as a header's text, which mutations damage less
    check(bytes, 8 + size);
  } catch (const nibble::Error&) {
  }
  return 0;
}
