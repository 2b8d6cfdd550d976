#include "nibble/container/torch_pickle/writer.h"

#include <algorithm>
#include <utility>
#include <zlib.h>

#include "nibble/base/error.h"
#include "nibble/container/torch_pickle/pickle.h"
#include "nibble/container/torch_pickle/zip_directory.h"

namespace nibble::container {
namespace {

constexpr std::uint64_t kAlignment = 64;  // as torch.save, so that mmap works

std::vector<std::int64_t> contiguous_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.rank());
  std::int64_t step = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::string pickle_of(const std::vector<TensorInfo>& tensors) {
  std::vector<PickledTensor> pickled;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i];
    pickled.push_back({info.name,
                       info.dtype,
                       std::to_string(i),
                       info.bytes,
                       0,
                       {info.shape.begin(), info.shape.end()},
                       contiguous_strides(info.shape)});
  }
  return write_pickle(pickled);
}

std::uint32_t crc_of_file(const File& file,
                          std::uint64_t offset,
                          std::uint64_t bytes) {
  std::vector<std::byte> buffer(
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes, 4 << 20)));
  uLong crc = crc32_z(0, nullptr, 0);
  for (std::uint64_t done = 0; done < bytes;) {
    const auto part = std::span(buffer).first(static_cast<std::size_t>(
        std::min<std::uint64_t>(buffer.size(), bytes - done)));
    file.read(offset + done, part);
    crc =
        crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
    done += part.size();
  }
  return static_cast<std::uint32_t>(crc);
}

}  // namespace

TorchFileWriter::TorchFileWriter(const std::filesystem::path& path,
                                 std::vector<TensorInfo> tensors)
    : file_(File::create(path)), prefix_(path.stem().string()) {
  const std::string pickle = pickle_of(tensors);
  const std::string byte_order = "little";
  const std::string version = "3\n";
  add_member("data.pkl", pickle.size(), &pickle);
  add_member("byteorder", byte_order.size(), &byte_order);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    add_member("data/" + std::to_string(i), tensors[i].bytes, nullptr);
    const bool added =
        places_
            .emplace(tensors[i].name,
                     Place{members_.back().offset, tensors[i].bytes})
            .second;
    NIBBLE_CHECK(added,
                 kInternal,
                 "torch file: found tensor {} twice",
                 printable(tensors[i].name));
  }
  add_member("version", version.size(), &version);
  file_bytes_ =
      end_ + zip_central_directory(members_, header_offsets_, end_).size();
  file_.reserve(file_bytes_);
}

void TorchFileWriter::add_member(const std::string& name,
                                 std::uint64_t bytes,
                                 const std::string* content) {
  const std::string full = prefix_ + "/" + name;
  const std::string header = zip_local_header(full, end_, bytes, 0, kAlignment);
  header_offsets_.push_back(end_);
  members_.push_back({full, end_ + header.size(), bytes, 0});
  if (content != nullptr) {
    file_.write(members_.back().offset, std::as_bytes(std::span(*content)));
  }
  end_ = members_.back().offset + bytes;
}

void TorchFileWriter::write(std::string_view name,
                            std::uint64_t offset,
                            std::span<const std::byte> data) {
  const auto found = places_.find(std::string(name));
  NIBBLE_CHECK(found != places_.end() && offset <= found->second.bytes &&
                   data.size() <= found->second.bytes - offset,
               kInternal,
               "torch file: found {} bytes at {} for tensor {}, expected a "
               "place inside a planned tensor",
               data.size(),
               offset,
               printable(name));
  file_.write(found->second.offset + offset, data);
}

void TorchFileWriter::finish() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    ZipMember& member = members_[i];
    member.crc = crc_of_file(file_, member.offset, member.bytes);
    const std::string header = zip_local_header(
        member.name, header_offsets_[i], member.bytes, member.crc, kAlignment);
    file_.write(header_offsets_[i], std::as_bytes(std::span(header)));
  }
  const std::string directory =
      zip_central_directory(members_, header_offsets_, end_);
  file_.write(end_, std::as_bytes(std::span(directory)));
}

void TorchFileWriter::sync() {
  file_.sync();
}

}  // namespace nibble::container
