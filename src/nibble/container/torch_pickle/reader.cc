#include "nibble/container/torch_pickle/reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/torch_pickle/pickle.h"
#include "nibble/container/torch_pickle/zip_directory.h"

namespace nibble::container {
namespace {

constexpr std::string_view kPickleName = "/data.pkl";
constexpr std::uint64_t kMaxPickleBytes = std::uint64_t{1} << 30;

// Where the elements of a tensor lie.
struct Placement {
  std::uint64_t offset = 0;          // of the first element in the file, bytes
  std::vector<std::int64_t> stride;  // elements
  bool contiguous = false;
};

bool is_contiguous(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.stride[i] != expected) {
      return false;
    }
    expected *= tensor.shape[i];
  }
  return true;
}

// Refuses files that are known not to be of the zip form, by name.
void check_magic(const File& file) {
  std::array<std::byte, 16> head{};
  const std::uint64_t size = file.size_bytes();
  const std::size_t count =
      static_cast<std::size_t>(std::min<std::uint64_t>(size, head.size()));
  file.read(0, std::span(head).first(count));
  constexpr std::array<unsigned char, 4> kZip{'P', 'K', 3, 4};
  // A pickled integer that torch before 1.6 wrote first.
  constexpr std::array<unsigned char, 5> kLegacy{0x80, 0x02, 0x8A, 0x0A, 0x6C};
  if (count >= kLegacy.size() &&
      std::memcmp(head.data(), kLegacy.data(), kLegacy.size()) == 0) {
    fail_with_hint(ErrorCode::kUnsupported,
                   "load it with torch and save it again: torch 1.6 and later "
                   "write the zip form",
                   "found a torch file of the form before 1.6, expected the "
                   "zip form");
  }
  NIBBLE_CHECK(
      count >= kZip.size() &&
          std::memcmp(head.data(), kZip.data(), kZip.size()) == 0,
      kCorruptData,
      "found {} bytes that begin no zip archive, expected a file written by "
      "torch.save",
      size);
}

class TorchReader : public CheckpointReader {
 public:
  explicit TorchReader(const std::filesystem::path& path)
      : file_(File::open_read(path)), files_{path} {
    check_magic(file_);
    const std::vector<ZipMember> members = read_zip_directory(file_);
    place_tensors(members, read_pickle(pickle_bytes(members)));
    index_names();
  }

  [[nodiscard]] std::span<const TensorInfo> tensors() const override {
    return tensors_;
  }

  [[nodiscard]] const std::map<std::string, std::string>& metadata()
      const override {
    return metadata_;
  }

  [[nodiscard]] std::span<const std::filesystem::path> files() const override {
    return files_;
  }

  void read(const TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override {
    const Placement& place = placement(tensor);
    NIBBLE_CHECK(
        offset <= tensor.bytes && out.size() <= tensor.bytes - offset,
        kInternal,
        "tensor {}: found a read of {} bytes at {}, expected at most {}",
        printable(tensor.name),
        out.size(),
        offset,
        tensor.bytes);
    if (place.contiguous) {
      file_.read(place.offset + offset, out);
    } else {
      gather(tensor, place, offset, out);
    }
  }

  [[nodiscard]] std::optional<Tensor> map(
      const TensorInfo& tensor) const override {
    const Placement& place = placement(tensor);
    if (!place.contiguous || place.offset % dtype_bytes(tensor.dtype) != 0) {
      return std::nullopt;
    }
    const std::shared_ptr<const MappedFile> mapping = mapped();
    return Tensor(
        ConstTensorView(
            mapping->bytes().data() + place.offset, tensor.dtype, tensor.shape),
        mapping);
  }

  void drop_cache(const TensorInfo& tensor,
                  std::uint64_t offset,
                  std::uint64_t bytes) const override {
    const Placement& place = placement(tensor);
    if (place.contiguous) {
      file_.drop_cache(place.offset + offset, bytes);
    }
  }

 private:
  std::vector<std::byte> pickle_bytes(const std::vector<ZipMember>& members) {
    const ZipMember* pickle = nullptr;
    for (const ZipMember& member : members) {
      if (member.name.ends_with(kPickleName)) {
        NIBBLE_CHECK(pickle == nullptr,
                     kCorruptData,
                     "zip archive: found {} and {}, expected one data.pkl",
                     printable(pickle->name),
                     printable(member.name));
        pickle = &member;
      }
    }
    NIBBLE_CHECK(pickle != nullptr,
                 kCorruptData,
                 "zip archive: found no data.pkl, expected one: this is no "
                 "torch file");
    NIBBLE_CHECK(pickle->bytes <= kMaxPickleBytes,
                 kCorruptData,
                 "data.pkl: found {} bytes, expected at most {}",
                 pickle->bytes,
                 kMaxPickleBytes);
    prefix_ = pickle->name.substr(0, pickle->name.size() - kPickleName.size());
    std::vector<std::byte> bytes(static_cast<std::size_t>(pickle->bytes));
    file_.read(pickle->offset, bytes);
    return bytes;
  }

  void place_tensors(const std::vector<ZipMember>& members,
                     const PickledCheckpoint& checkpoint) {
    std::unordered_map<std::string_view, const ZipMember*> by_name;
    for (const ZipMember& member : members) {
      NIBBLE_CHECK(by_name.emplace(member.name, &member).second,
                   kCorruptData,
                   "zip archive: found member {} twice",
                   printable(member.name));
    }
    check_byte_order(by_name);
    for (const PickledTensor& tensor : checkpoint.tensors) {
      const std::string member_name = prefix_ + "/data/" + tensor.storage;
      const auto found = by_name.find(member_name);
      NIBBLE_CHECK(found != by_name.end(),
                   kCorruptData,
                   "tensor {}: found no member {}",
                   printable(tensor.name),
                   printable(member_name));
      NIBBLE_CHECK(found->second->bytes == tensor.storage_bytes,
                   kCorruptData,
                   "tensor {}: found a storage of {} bytes, expected {}",
                   printable(tensor.name),
                   found->second->bytes,
                   tensor.storage_bytes);
      add_tensor(tensor, found->second->offset);
    }
    for (const std::string& name : checkpoint.ignored) {
      metadata_[name] = "not a tensor";
    }
  }

  void add_tensor(const PickledTensor& tensor, std::uint64_t storage_offset) {
    const std::size_t item = dtype_bytes(tensor.dtype);
    TensorInfo info;
    info.name = tensor.name;
    info.dtype = tensor.dtype;
    info.shape = Shape(std::span<const std::int64_t>(tensor.shape));
    info.bytes = static_cast<std::uint64_t>(info.shape.elements()) * item;
    const bool empty = info.bytes == 0;  // its offset and strides mean nothing
    tensors_.push_back(std::move(info));
    placements_.push_back(
        {empty ? storage_offset
               : storage_offset +
                     static_cast<std::uint64_t>(tensor.offset) * item,
         tensor.stride,
         empty || is_contiguous(tensor)});
  }

  void check_byte_order(
      const std::unordered_map<std::string_view, const ZipMember*>& by_name)
      const {
    const std::string member_name = prefix_ + "/byteorder";
    const auto found = by_name.find(member_name);
    if (found == by_name.end()) {
      return;  // older files: little-endian
    }
    std::string order(static_cast<std::size_t>(
                          std::min<std::uint64_t>(found->second->bytes, 16)),
                      '\0');
    file_.read(found->second->offset, std::as_writable_bytes(std::span(order)));
    NIBBLE_CHECK(order == "little",
                 kUnsupported,
                 "byteorder: found {}, expected little",
                 printable(order));
  }

  [[nodiscard]] const Placement& placement(const TensorInfo& tensor) const {
    return placements_[index_of(tensor)];
  }

  std::shared_ptr<const MappedFile> mapped() const {
    const std::scoped_lock lock(mutex_);
    if (!mapping_) {
      mapping_ = std::make_shared<const MappedFile>(file_);
    }
    return mapping_;
  }

  // Copies bytes [offset, offset + out.size()) of the row-major tensor out of
  // its strided place.
  void gather(const TensorInfo& tensor,
              const Placement& place,
              std::uint64_t offset,
              std::span<std::byte> out) const {
    const std::size_t item = dtype_bytes(tensor.dtype);
    NIBBLE_CHECK(offset % item == 0 && out.size() % item == 0,
                 kInternal,
                 "tensor {}: found a read that cuts an element",
                 printable(tensor.name));
    const auto mapping = mapped();
    const std::byte* base = mapping->bytes().data() + place.offset;
    const std::size_t rank = tensor.shape.rank();
    // Index of the next element, outermost first.
    std::array<std::int64_t, Shape::kMaxRank> index{};
    auto rest = static_cast<std::int64_t>(offset / item);
    for (std::size_t i = rank; i-- > 0;) {
      index[i] = rest % tensor.shape[i];
      rest /= tensor.shape[i];
    }
    const std::size_t inner = rank - 1;  // rank 0 is contiguous
    for (std::size_t done = 0; done < out.size();) {
      std::int64_t from = 0;
      for (std::size_t i = 0; i < rank; ++i) {
        from += index[i] * place.stride[i];
      }
      const std::int64_t run =
          std::min(tensor.shape[inner] - index[inner],
                   static_cast<std::int64_t>((out.size() - done) / item));
      copy_run(base + static_cast<std::size_t>(from) * item,
               place.stride[inner],
               item,
               out.subspan(done, static_cast<std::size_t>(run) * item));
      done += static_cast<std::size_t>(run) * item;
      index[inner] += run;
      for (std::size_t i = inner; i > 0 && index[i] == tensor.shape[i]; --i) {
        index[i] = 0;
        ++index[i - 1];
      }
    }
  }

  // Elements that lie `stride` elements apart.
  static void copy_run(const std::byte* from,
                       std::int64_t stride,
                       std::size_t item,
                       std::span<std::byte> out) {
    if (stride == 1) {
      std::memcpy(out.data(), from, out.size());
      return;
    }
    const std::size_t step = static_cast<std::size_t>(stride) * item;
    for (std::size_t at = 0; at < out.size(); at += item, from += step) {
      std::memcpy(out.data() + at, from, item);
    }
  }

  File file_;
  std::vector<std::filesystem::path> files_;
  std::string prefix_;
  std::vector<TensorInfo> tensors_;
  std::vector<Placement> placements_;  // beside tensors_
  std::map<std::string, std::string> metadata_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const MappedFile> mapping_;
};

}  // namespace

std::unique_ptr<CheckpointReader> open_torch_file(
    const std::filesystem::path& path) {
  return with_context(path.string(),
                      [&] { return std::make_unique<TorchReader>(path); });
}

}  // namespace nibble::container
