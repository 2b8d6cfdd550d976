#include "nibble/container/torch_pickle/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"

namespace nibble::container {
namespace {

// Field values of the zip specification (PKWARE APPNOTE 6.3, sections 4.3 to
// 4.5).
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocator64Signature = 0x07064b50;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocator64Bytes = 20;
constexpr std::uint16_t kUtf8Names = 0x0800;
constexpr std::uint16_t kEncrypted = 0x0001;
constexpr std::uint16_t kZip64Field = 0x0001;
constexpr std::uint16_t kPaddingField = 0x4246;
constexpr std::uint32_t kSeeZip64 = 0xFFFFFFFF;
constexpr std::uint16_t kVersionZip64 = 45;
constexpr std::uint16_t kDosDate = 0x0021;  // 1980-01-01: no clock in the bytes

// Far above any real checkpoint; bounds the work for a hostile one.
constexpr std::uint64_t kMaxMembers = 4'000'000;
constexpr std::uint64_t kMaxDirectoryBytes = std::uint64_t{1} << 30;

template <typename T>
T get(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::vector<std::byte> read_bytes(const File& file,
                                  std::uint64_t offset,
                                  std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  file.read(offset, out);
  return out;
}

// What the end records say of the central directory.
struct Directory {
  std::uint64_t members = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The offset of the end record: the last one whose comment reaches exactly to
// the end of the file.
std::optional<std::uint64_t> find_end_record(const File& file,
                                             std::uint64_t size) {
  const std::size_t window = static_cast<std::size_t>(
      std::min<std::uint64_t>(size, 65535 + kEndBytes));
  if (window < kEndBytes) {
    return std::nullopt;
  }
  const auto tail = read_bytes(file, size - window, window);
  for (std::size_t at = window - kEndBytes + 1; at-- > 0;) {
    if (get<std::uint32_t>(tail, at) == kEndSignature &&
        at + kEndBytes + get<std::uint16_t>(tail, at + 20) == window) {
      return size - window + at;
    }
  }
  return std::nullopt;
}

Directory read_end_records(const File& file, std::uint64_t size) {
  const auto end = find_end_record(file, size);
  NIBBLE_CHECK(end.has_value(),
               kCorruptData,
               "zip archive: found no end record, expected one: the file is "
               "cut or is no zip archive");
  const auto record = read_bytes(file, *end, kEndBytes);
  Directory directory{get<std::uint16_t>(record, 10),
                      get<std::uint32_t>(record, 16),
                      get<std::uint32_t>(record, 12)};
  if (*end >= kLocator64Bytes) {
    const auto locator =
        read_bytes(file, *end - kLocator64Bytes, kLocator64Bytes);
    if (get<std::uint32_t>(locator, 0) == kLocator64Signature) {
      const auto at = get<std::uint64_t>(locator, 8);
      NIBBLE_CHECK(at <= size && size - at >= kEnd64Bytes,
                   kCorruptData,
                   "zip archive: found the zip64 end record at byte {}, "
                   "expected it inside {} bytes",
                   at,
                   size);
      const auto wide = read_bytes(file, at, kEnd64Bytes);
      NIBBLE_CHECK(get<std::uint32_t>(wide, 0) == kEnd64Signature,
                   kCorruptData,
                   "zip archive: found no zip64 end record at byte {}, where "
                   "its locator points",
                   at);
      directory = {get<std::uint64_t>(wide, 32),
                   get<std::uint64_t>(wide, 48),
                   get<std::uint64_t>(wide, 40)};
    }
  }
  const auto stop = checked_add(directory.offset, directory.bytes);
  NIBBLE_CHECK(stop && *stop <= *end && directory.bytes <= kMaxDirectoryBytes &&
                   directory.members <= kMaxMembers &&
                   directory.members * kCentralBytes <= directory.bytes,
               kCorruptData,
               "zip archive: found a central directory of {} members and {} "
               "bytes at byte {}, expected it to fit before byte {}",
               directory.members,
               directory.bytes,
               directory.offset,
               *end);
  return directory;
}

// Sizes and offset from the zip64 field of a central entry: it holds, in this
// order, only those whose 32-bit field is all ones.
void apply_zip64_field(std::span<const std::byte> extra,
                       std::uint64_t& bytes,
                       std::uint64_t& stored,
                       std::uint64_t& header) {
  std::size_t at = 0;
  while (at + 4 <= extra.size()) {
    const auto id = get<std::uint16_t>(extra, at);
    const std::size_t length = get<std::uint16_t>(extra, at + 2);
    NIBBLE_CHECK(length <= extra.size() - at - 4,
                 kCorruptData,
                 "zip archive: found an extra field of {} bytes, expected at "
                 "most {}",
                 length,
                 extra.size() - at - 4);
    if (id == kZip64Field) {
      std::span<const std::byte> field = extra.subspan(at + 4, length);
      for (std::uint64_t* value : {&bytes, &stored, &header}) {
        if (*value == kSeeZip64) {
          NIBBLE_CHECK(field.size() >= 8,
                       kCorruptData,
                       "zip archive: found a zip64 field that ends early");
          *value = get<std::uint64_t>(field, 0);
          field = field.subspan(8);
        }
      }
      return;
    }
    at += 4 + length;
  }
}

// Where the data of a member begins: behind its local header.
std::uint64_t data_offset(const File& file,
                          const std::string& name,
                          std::uint64_t header,
                          std::uint64_t bytes,
                          std::uint64_t limit) {
  NIBBLE_CHECK(header <= limit && limit - header >= kLocalBytes,
               kCorruptData,
               "zip member {}: found its header at byte {}, expected it before "
               "byte {}",
               printable(name),
               header,
               limit);
  const auto local = read_bytes(file, header, kLocalBytes);
  NIBBLE_CHECK(get<std::uint32_t>(local, 0) == kLocalSignature,
               kCorruptData,
               "zip member {}: found no local header at byte {}, where the "
               "central directory points",
               printable(name),
               header);
  const std::uint64_t data = header + kLocalBytes +
                             get<std::uint16_t>(local, 26) +
                             get<std::uint16_t>(local, 28);
  NIBBLE_CHECK(data <= limit && bytes <= limit - data,
               kCorruptData,
               "zip member {}: found {} bytes at byte {}, expected them to end "
               "before the central directory at byte {}",
               printable(name),
               bytes,
               data,
               limit);
  return data;
}

}  // namespace

std::vector<ZipMember> read_zip_directory(const File& file) {
  const std::uint64_t size = file.size_bytes();
  const Directory directory = read_end_records(file, size);
  const auto bytes = read_bytes(
      file, directory.offset, static_cast<std::size_t>(directory.bytes));
  const std::span<const std::byte> all(bytes);
  std::vector<ZipMember> members;
  members.reserve(static_cast<std::size_t>(directory.members));
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory.members; ++i) {
    NIBBLE_CHECK(all.size() - at >= kCentralBytes &&
                     get<std::uint32_t>(all, at) == kCentralSignature,
                 kCorruptData,
                 "zip archive: found no entry {} of {} in the central "
                 "directory",
                 i,
                 directory.members);
    const auto flags = get<std::uint16_t>(all, at + 8);
    const auto method = get<std::uint16_t>(all, at + 10);
    std::uint64_t stored = get<std::uint32_t>(all, at + 20);
    std::uint64_t whole = get<std::uint32_t>(all, at + 24);
    std::uint64_t header = get<std::uint32_t>(all, at + 42);
    const std::size_t name_bytes = get<std::uint16_t>(all, at + 28);
    const std::size_t extra_bytes = get<std::uint16_t>(all, at + 30);
    const std::size_t comment_bytes = get<std::uint16_t>(all, at + 32);
    const std::size_t rest = all.size() - at - kCentralBytes;
    NIBBLE_CHECK(name_bytes + extra_bytes + comment_bytes <= rest,
                 kCorruptData,
                 "zip archive: found entry {} reaching past the central "
                 "directory",
                 i);
    const auto name_span = all.subspan(at + kCentralBytes, name_bytes);
    std::string name(reinterpret_cast<const char*>(name_span.data()),
                     name_bytes);
    apply_zip64_field(all.subspan(at + kCentralBytes + name_bytes, extra_bytes),
                      whole,
                      stored,
                      header);
    NIBBLE_CHECK(method == 0 && (flags & kEncrypted) == 0,
                 kUnsupported,
                 "zip member {}: found compression method {}{}, expected "
                 "stored bytes",
                 printable(name),
                 method,
                 (flags & kEncrypted) != 0 ? " with encryption" : "");
    NIBBLE_CHECK(whole == stored,
                 kCorruptData,
                 "zip member {}: found {} bytes stored as {}, expected equal",
                 printable(name),
                 whole,
                 stored);
    const std::uint64_t data =
        data_offset(file, name, header, whole, directory.offset);
    members.push_back(
        {std::move(name), data, whole, get<std::uint32_t>(all, at + 16)});
    at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  }
  return members;
}

std::string zip_local_header(const std::string& name,
                             std::uint64_t header_offset,
                             std::uint64_t bytes,
                             std::uint32_t crc,
                             std::uint64_t alignment) {
  // The zip64 field stands in every header, so that its size does not depend
  // on the member's: 4 + 16 bytes. Then padding, at least 4 bytes of field
  // head.
  constexpr std::uint64_t kZip64FieldBytes = 20;
  const std::uint64_t unpadded =
      header_offset + kLocalBytes + name.size() + kZip64FieldBytes + 4;
  const std::uint64_t padding = round_up(unpadded, alignment) - unpadded;
  std::string out;
  put(out, kLocalSignature);
  put(out, kVersionZip64);
  put(out, kUtf8Names);
  put(out, std::uint16_t{0});  // stored
  put(out, std::uint16_t{0});  // time
  put(out, kDosDate);
  put(out, crc);
  put(out, kSeeZip64);
  put(out, kSeeZip64);
  put(out, static_cast<std::uint16_t>(name.size()));
  put(out, static_cast<std::uint16_t>(kZip64FieldBytes + 4 + padding));
  out += name;
  put(out, kZip64Field);
  put(out, std::uint16_t{16});
  put(out, bytes);
  put(out, bytes);
  put(out, kPaddingField);
  put(out, static_cast<std::uint16_t>(padding));
  out.append(static_cast<std::size_t>(padding), 'Z');
  return out;
}

std::string zip_central_directory(std::span<const ZipMember> members,
                                  std::span<const std::uint64_t> header_offsets,
                                  std::uint64_t directory_offset) {
  std::string out;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ZipMember& member = members[i];
    put(out, kCentralSignature);
    put(out, kVersionZip64);
    put(out, kVersionZip64);
    put(out, kUtf8Names);
    put(out, std::uint16_t{0});
    put(out, std::uint16_t{0});
    put(out, kDosDate);
    put(out, member.crc);
    put(out, kSeeZip64);
    put(out, kSeeZip64);
    put(out, static_cast<std::uint16_t>(member.name.size()));
    put(out, std::uint16_t{28});
    put(out, std::uint16_t{0});  // comment
    put(out, std::uint16_t{0});  // disk
    put(out, std::uint16_t{0});  // internal attributes
    put(out, std::uint32_t{0});  // external attributes
    put(out, kSeeZip64);
    out += member.name;
    put(out, kZip64Field);
    put(out, std::uint16_t{24});
    put(out, member.bytes);
    put(out, member.bytes);
    put(out, header_offsets[i]);
  }
  const std::uint64_t directory_bytes = out.size();
  const auto count = static_cast<std::uint64_t>(members.size());
  put(out, kEnd64Signature);
  put(out, std::uint64_t{kEnd64Bytes - 12});
  put(out, kVersionZip64);
  put(out, kVersionZip64);
  put(out, std::uint32_t{0});
  put(out, std::uint32_t{0});
  put(out, count);
  put(out, count);
  put(out, directory_bytes);
  put(out, directory_offset);
  put(out, kLocator64Signature);
  put(out, std::uint32_t{0});
  put(out, directory_offset + directory_bytes);
  put(out, std::uint32_t{1});
  put(out, kEndSignature);
  put(out, std::uint16_t{0});
  put(out, std::uint16_t{0});
  put(out, std::uint16_t{0xFFFF});
  put(out, std::uint16_t{0xFFFF});
  put(out, kSeeZip64);
  put(out, kSeeZip64);
  put(out, std::uint16_t{0});
  return out;
}

}  // namespace nibble::container
