#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_entry.h"
#include "nibble/base/error.h"
#include "nibble/container/torch_pickle/pickle.h"
#include "nibble/container/torch_pickle/reader.h"

namespace {

using nibble::container::CheckpointReader;
using nibble::container::TensorInfo;

constexpr std::uint64_t kMostBytes = 1 << 22;

// What every opened file promises: each tensor can be read, mapped or not, to
// its last byte, and both ways give the same.
void check_file(const std::string& path) {
  const auto reader = nibble::container::open_torch_file(path);
  for (const TensorInfo& tensor : reader->tensors()) {
    if (tensor.bytes > kMostBytes) {
      continue;  // strides of 0 may repeat elements as often as they like
    }
    const nibble::Tensor copy = reader->load_copy(tensor);
    if (const auto mapped = reader->map(tensor)) {
      const auto a = copy.view().byte_span();
      const auto b = mapped->view().byte_span();
      fuzz_require(
          std::string(reinterpret_cast<const char*>(a.data()), a.size()) ==
          std::string(reinterpret_cast<const char*>(b.data()), b.size()));
    }
  }
}

// Bytes as a file that never touches a disk.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size)
      : descriptor_(::memfd_create("fuzz", 0)) {
    fuzz_require(descriptor_ >= 0);
    fuzz_require(::write(descriptor_, data, size) ==
                 static_cast<ssize_t>(size));
  }

  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  ~MemoryFile() { ::close(descriptor_); }

  [[nodiscard]] std::string path() const {
    return "/proc/self/fd/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace

// Archives as files, anything else as the pickle inside of one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  try {
    if (size >= 2 && data[0] == 'P' && data[1] == 'K') {
      check_file(MemoryFile(data, size).path());
    } else {
      const auto pickled =
          nibble::container::read_pickle(std::as_bytes(std::span(data, size)));
      for (const auto& tensor : pickled.tensors) {
        fuzz_require(tensor.shape.size() == tensor.stride.size());
      }
    }
  } catch (const nibble::Error&) {
    // The expected answer to most inputs.
  }
  return 0;
}
