#include "nibble/container/torch_pickle/writer.h"

#include <algorithm>
#include <utility>
#include <zlib.h>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/container/tensor_part.h"
#include "nibble/container/torch_pickle/pickle.h"
#include "nibble/container/torch_pickle/zip_directory.h"

namespace nibble::container {
namespace {

constexpr std::uint64_t kAlignment = 64;  // as torch.save, so that mmap works
constexpr std::string_view kByteOrder = "little";
constexpr std::string_view kVersion = "3\n";

std::vector<std::int64_t> contiguous_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.rank());
  std::int64_t step = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::string pickle_of(const OutputFile& file) {
  std::vector<PickledTensor> pickled;
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const TensorInfo& info = file.tensors[i];
    NIBBLE_CHECK(info.name.starts_with(file.prefix),
                 kInternal,
                 "torch file {}: found tensor {}, expected a name that begins "
                 "with {}",
                 file.name,
                 printable(info.name),
                 file.prefix);
    pickled.push_back({info.name.substr(file.prefix.size()),
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
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes, 1 << 20)));
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

// Lays members out one behind the other.
void add_member(TorchFilePlan& plan,
                const std::string& name,
                std::uint64_t bytes) {
  const std::uint64_t begin = plan.directory_offset;
  const std::uint64_t header =
      zip_local_header(name, begin, bytes, 0, kAlignment).size();
  plan.header_offsets.push_back(begin);
  plan.members.push_back({name, begin + header, bytes, 0});
  NIBBLE_CHECK(
      !__builtin_add_overflow(begin + header, bytes, &plan.directory_offset),
      kInvalidArgument,
      "torch file: found more bytes than a file can hold");
}

}  // namespace

TorchFilePlan plan_torch_file(const OutputFile& file) {
  TorchFilePlan plan;
  plan.pickle = pickle_of(file);
  const std::string prefix =
      std::filesystem::path(file.name).stem().string() + "/";
  add_member(plan, prefix + "data.pkl", plan.pickle.size());
  add_member(plan, prefix + "byteorder", kByteOrder.size());
  plan.first_tensor = plan.members.size();
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    add_member(
        plan, prefix + "data/" + std::to_string(i), file.tensors[i].bytes);
  }
  add_member(plan, prefix + "version", kVersion.size());
  plan.file_bytes =
      plan.directory_offset + zip_central_directory(plan.members,
                                                    plan.header_offsets,
                                                    plan.directory_offset)
                                  .size();
  return plan;
}

TorchFileWriter::TorchFileWriter(const std::filesystem::path& directory,
                                 const OutputFile& file,
                                 ExistingFiles existing)
    : plan_(plan_torch_file(file)),
      file_(existing == ExistingFiles::kContinue &&
                    std::filesystem::exists(directory / file.name)
                ? File::open_write(directory / file.name)
                : File::create(directory / file.name)) {
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const bool added =
        members_.emplace(file.tensors[i].name, plan_.first_tensor + i).second;
    NIBBLE_CHECK(added,
                 kInternal,
                 "torch file: found tensor {} twice",
                 printable(file.tensors[i].name));
  }
  file_.reserve(plan_.file_bytes);
  const auto put = [&](std::size_t member, std::string_view content) {
    file_.write(plan_.members[member].offset,
                std::as_bytes(std::span(content)));
  };
  put(0, plan_.pickle);
  put(1, kByteOrder);
  put(plan_.members.size() - 1, kVersion);
}

std::uint64_t TorchFileWriter::place_of(std::string_view name,
                                        std::uint64_t offset,
                                        std::uint64_t bytes) const {
  const TensorPart part = TensorPart::parse(name);
  const auto found = members_.find(std::string(part.tensor));
  NIBBLE_CHECK(found != members_.end(),
               kInternal,
               "torch file: found no tensor {} in it",
               printable(name));
  const ZipMember& member = plan_.members[found->second];
  const std::uint64_t whole = member.bytes / part.count;
  NIBBLE_CHECK(offset <= whole && bytes <= whole - offset,
               kInternal,
               "torch file: found {} bytes at {} for tensor {}, expected a "
               "place inside its {} bytes",
               bytes,
               offset,
               printable(name),
               whole);
  return member.offset + part.index * whole + offset;
}

void TorchFileWriter::write(std::string_view name,
                            std::uint64_t offset,
                            std::span<const std::byte> data) {
  file_.write(place_of(name, offset, data.size()), data);
}

void TorchFileWriter::read(std::string_view name,
                           std::uint64_t offset,
                           std::span<std::byte> out) const {
  file_.read(place_of(name, offset, out.size()), out);
}

void TorchFileWriter::finish_member(std::size_t index) {
  ZipMember& member = plan_.members[index];
  member.crc = crc_of_file(file_, member.offset, member.bytes);
  const std::string header = zip_local_header(member.name,
                                              plan_.header_offsets[index],
                                              member.bytes,
                                              member.crc,
                                              kAlignment);
  file_.write(plan_.header_offsets[index], std::as_bytes(std::span(header)));
}

void TorchFileWriter::finish() {
  parallel_for(static_cast<std::int64_t>(plan_.members.size()),
               1,
               [&](std::int64_t member, std::int64_t) {
                 finish_member(static_cast<std::size_t>(member));
               });
  const std::string directory = zip_central_directory(
      plan_.members, plan_.header_offsets, plan_.directory_offset);
  file_.write(plan_.directory_offset, std::as_bytes(std::span(directory)));
}

void TorchFileWriter::sync() {
  file_.sync();
}

TorchSetWriter::TorchSetWriter(const std::filesystem::path& directory,
                               std::span<const OutputFile> files,
                               ExistingFiles existing)
    : directory_(directory) {
  for (const OutputFile& file : files) {
    with_context((directory / file.name).string(), [&] {
      files_.push_back(
          std::make_unique<TorchFileWriter>(directory, file, existing));
    });
    for (const TensorInfo& tensor : file.tensors) {
      const bool added =
          file_by_name_.emplace(tensor.name, files_.size() - 1).second;
      NIBBLE_CHECK(added,
                   kInvalidArgument,
                   "tensor {}: found twice in one set of files, expected once",
                   printable(tensor.name));
    }
  }
}

TorchFileWriter& TorchSetWriter::file_of(std::string_view name) const {
  const auto found =
      file_by_name_.find(std::string(TensorPart::parse(name).tensor));
  NIBBLE_CHECK(found != file_by_name_.end(),
               kInternal,
               "tensor {}: found none of that name in the files being written",
               printable(name));
  return *files_[found->second];
}

void TorchSetWriter::write(std::string_view name,
                           std::uint64_t offset,
                           std::span<const std::byte> data) {
  file_of(name).write(name, offset, data);
}

void TorchSetWriter::read(std::string_view name,
                          std::uint64_t offset,
                          std::span<std::byte> out) const {
  file_of(name).read(name, offset, out);
}

void TorchSetWriter::finish() {
  for (const auto& file : files_) {
    file->finish();
  }
}

void TorchSetWriter::sync() {
  for (const auto& file : files_) {
    file->sync();
  }
  sync_directory(directory_);
}

}  // namespace nibble::container
