#include "nibble/container/safetensors/header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"

namespace nibble::container {
namespace {

constexpr std::string_view kMetadataName = "__metadata__";
constexpr std::string_view kLfsPointer = "version https://git-lfs";

// One tensor as the text says it, before the checks that need all of them.
struct Entry {
  TensorInfo info;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Receives the parser's events and allows only the shape of a header. Values
// are taken as they come, so nesting costs no memory and is refused at once.
class HeaderHandler {
 public:
  explicit HeaderHandler(std::size_t max_tensors) : max_tensors_(max_tensors) {}

  std::vector<Entry> take_entries() { return std::move(entries_); }

  TextMetadata take_metadata() { return std::move(metadata_); }

  bool null() { refuse("null"); }

  bool boolean(bool /*value*/) { refuse("a boolean"); }

  // Comes for negative numbers only, -0 included.
  bool number_integer(std::int64_t value) {
    refuse(value == 0 ? "-0" : fmt::format("{}", value));
  }

  bool number_float(double /*value*/, const std::string& text) { refuse(text); }

  bool binary(nlohmann::json::binary_t& /*value*/) { refuse("binary data"); }

  bool number_unsigned(std::uint64_t value);
  bool string(std::string& value);
  bool start_object(std::size_t /*size*/);
  bool key(std::string& name);
  bool end_object();
  bool start_array(std::size_t /*size*/);
  bool end_array();
  bool parse_error(std::size_t byte,
                   const std::string& last_token,
                   const nlohmann::json::exception& error);

 private:
  enum class Place { kStart, kRoot, kTensor, kMetadata, kShape, kOffsets };

  enum Field : unsigned { kDtype = 1, kShapeField = 2, kOffsetsField = 4 };

  std::string where() const {
    if (place_ == Place::kStart || place_ == Place::kRoot) {
      return "header";
    }
    return place_ == Place::kMetadata
               ? std::string(kMetadataName)
               : "tensor " + printable(entries_.back().info.name);
  }

  [[noreturn]] void refuse(std::string_view found) const;
  void begin_tensor(std::string& name);
  void begin_field(std::string_view name);
  void finish_shape();

  std::size_t max_tensors_;
  Place place_ = Place::kStart;
  bool metadata_seen_ = false;
  bool metadata_next_ = false;  // the value that comes is the metadata
  std::string metadata_key_;
  unsigned fields_seen_ = 0;
  Field field_ = kDtype;
  std::vector<std::uint64_t> numbers_;  // of the array being read
  TextMetadata metadata_;
  std::vector<Entry> entries_;
};

void HeaderHandler::refuse(std::string_view found) const {
  std::string_view expected = "a JSON object";
  switch (place_) {
    case Place::kStart:
      break;
    case Place::kRoot:
      expected = "an object for each name";
      break;
    case Place::kMetadata:
      expected = "text for each key";
      break;
    case Place::kShape:
      expected = "a shape of plain non-negative integers";
      break;
    case Place::kOffsets:
      expected = "two offsets that are plain non-negative integers";
      break;
    case Place::kTensor:
      expected = field_ == kDtype        ? "the name of a dtype"
                 : field_ == kShapeField ? "a list as shape"
                                         : "a list as data_offsets";
      break;
  }
  fail(ErrorCode::kCorruptData,
       "{}: found {}, expected {}",
       where(),
       printable(found),
       expected);
}

bool HeaderHandler::number_unsigned(std::uint64_t value) {
  if (place_ == Place::kShape) {
    NIBBLE_CHECK(numbers_.size() < kMaxSafetensorsRank,
                 kCorruptData,
                 "{}: found more than {} dimensions",
                 where(),
                 kMaxSafetensorsRank);
  } else if (place_ != Place::kOffsets || numbers_.size() == 2) {
    refuse(fmt::format("{}", value));
  }
  numbers_.push_back(value);
  return true;
}

bool HeaderHandler::string(std::string& value) {
  if (place_ == Place::kMetadata) {
    metadata_[metadata_key_] = std::move(value);
    return true;
  }
  if (place_ != Place::kTensor || field_ != kDtype) {
    refuse(fmt::format("text '{}'", value));
  }
  const std::optional<DType> dtype = dtype_from_name(value);
  NIBBLE_CHECK(dtype,
               kUnsupported,
               "{}: found dtype {}, expected one that is known here",
               where(),
               printable(value));
  entries_.back().info.dtype = *dtype;
  return true;
}

bool HeaderHandler::start_object(std::size_t /*size*/) {
  if (place_ == Place::kStart) {
    place_ = Place::kRoot;
  } else if (place_ == Place::kRoot) {
    place_ = metadata_next_ ? Place::kMetadata : Place::kTensor;
  } else {
    refuse("an object");
  }
  return true;
}

bool HeaderHandler::key(std::string& name) {
  if (place_ == Place::kRoot) {
    begin_tensor(name);
  } else if (place_ == Place::kMetadata) {
    NIBBLE_CHECK(!metadata_.contains(name),
                 kCorruptData,
                 "{}: found key {} twice",
                 where(),
                 printable(name));
    metadata_key_ = std::move(name);
  } else {
    begin_field(name);
  }
  return true;
}

void HeaderHandler::begin_tensor(std::string& name) {
  metadata_next_ = name == kMetadataName;
  if (metadata_next_) {
    NIBBLE_CHECK(
        !metadata_seen_, kCorruptData, "header: found {} twice", kMetadataName);
    metadata_seen_ = true;
    return;
  }
  NIBBLE_CHECK(entries_.size() < max_tensors_,
               kCorruptData,
               "header: found more than {} tensors",
               max_tensors_);
  entries_.emplace_back().info.name = std::move(name);
  fields_seen_ = 0;
}

void HeaderHandler::begin_field(std::string_view name) {
  if (name == "dtype") {
    field_ = kDtype;
  } else if (name == "shape") {
    field_ = kShapeField;
  } else if (name == "data_offsets") {
    field_ = kOffsetsField;
  } else {
    fail(ErrorCode::kCorruptData,
         "{}: found key {}, expected dtype, shape and data_offsets",
         where(),
         printable(name));
  }
  NIBBLE_CHECK((fields_seen_ & field_) == 0,
               kCorruptData,
               "{}: found {} twice",
               where(),
               name);
  fields_seen_ |= field_;
}

bool HeaderHandler::end_object() {
  if (place_ == Place::kTensor) {
    NIBBLE_CHECK(fields_seen_ == (kDtype | kShapeField | kOffsetsField),
                 kCorruptData,
                 "{}: found no {}",
                 where(),
                 (fields_seen_ & kDtype) == 0        ? "dtype"
                 : (fields_seen_ & kShapeField) == 0 ? "shape"
                                                     : "data_offsets");
  }
  // The root's own end leaves kRoot: the parser lets nothing follow it.
  place_ = Place::kRoot;
  return true;
}

bool HeaderHandler::start_array(std::size_t /*size*/) {
  if (place_ != Place::kTensor || field_ == kDtype) {
    refuse("a list");
  }
  place_ = field_ == kShapeField ? Place::kShape : Place::kOffsets;
  numbers_.clear();
  return true;
}

bool HeaderHandler::end_array() {
  if (place_ == Place::kShape) {
    finish_shape();
  } else {
    NIBBLE_CHECK(numbers_.size() == 2,
                 kCorruptData,
                 "{}: found {} data_offsets, expected 2",
                 where(),
                 numbers_.size());
    entries_.back().begin = numbers_[0];
    entries_.back().end = numbers_[1];
  }
  place_ = Place::kTensor;
  return true;
}

void HeaderHandler::finish_shape() {
  std::vector<std::int64_t> dims;
  for (const std::uint64_t number : numbers_) {
    NIBBLE_CHECK(std::in_range<std::int64_t>(number),
                 kCorruptData,
                 "{}: found a dimension of {}, expected less than 2^63",
                 where(),
                 number);
    dims.push_back(static_cast<std::int64_t>(number));
  }
  entries_.back().info.shape =
      with_context(where(), [&] { return Shape(dims); });
}

bool HeaderHandler::parse_error(std::size_t byte,
                                const std::string& last_token,
                                const nlohmann::json::exception& /*error*/) {
  fail(ErrorCode::kCorruptData,
       "header: byte {}: found '{}', which is not valid JSON there",
       byte,
       printable(last_token));
}

// Element count and bytes of a tensor must be computable and equal to what
// the offsets span.
void check_size(Entry& entry) {
  const TensorInfo& info = entry.info;
  const std::optional<std::uint64_t> bytes =
      tensor_bytes(info.dtype, info.shape);
  NIBBLE_CHECK(bytes,
               kCorruptData,
               "tensor {}: found shape {} of {}, expected a whole number of "
               "bytes below 2^63",
               printable(info.name),
               to_string(info.shape),
               dtype_name(info.dtype));
  NIBBLE_CHECK(*bytes == entry.end - entry.begin,
               kCorruptData,
               "tensor {}: found {} bytes, expected {} for shape {} of {}",
               printable(info.name),
               entry.end - entry.begin,
               *bytes,
               to_string(info.shape),
               dtype_name(info.dtype));
  entry.info.bytes = *bytes;
}

// Walks the tensors in order of their data; each must begin where the one
// before ended. Returns the end of the last.
std::uint64_t check_layout(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.info.name) <
           std::tie(b.begin, b.end, b.info.name);
  });
  std::uint64_t cursor = 0;
  for (Entry& entry : entries) {
    const std::string name = printable(entry.info.name);
    NIBBLE_CHECK(entry.begin >= cursor,
                 kCorruptData,
                 "tensor {}: found data from byte {}, which overlaps the "
                 "tensor before it (to byte {})",
                 name,
                 entry.begin,
                 cursor);
    NIBBLE_CHECK(entry.begin == cursor,
                 kCorruptData,
                 "tensor {}: found data from byte {}, expected {}: there is a "
                 "hole before it",
                 name,
                 entry.begin,
                 cursor);
    NIBBLE_CHECK(entry.end >= entry.begin,
                 kCorruptData,
                 "tensor {}: found data_offsets {} to {}, expected the first "
                 "not above the second",
                 name,
                 entry.begin,
                 entry.end);
    check_size(entry);
    cursor = entry.end;
  }
  return cursor;
}

void check_unique_names(std::span<const Entry> entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) {
    names.emplace_back(entry.info.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  NIBBLE_CHECK(twice == names.end(),
               kCorruptData,
               "header: found tensor {} twice",
               printable(*twice));
}

// JSON text of a string, as the reference writer escapes it.
std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail(ErrorCode::kInvalidArgument,
         "tensor {}: found a name that is not UTF-8",
         printable(text));
  }
}

void append_tensor(const TensorInfo& tensor,
                   std::uint64_t begin,
                   std::string& json) {
  json += json.size() == 1 ? "" : ",";
  json += quoted(tensor.name);
  json += fmt::format(R"(:{{"dtype":"{}","shape":[)", dtype_name(tensor.dtype));
  for (std::size_t i = 0; i < tensor.shape.rank(); ++i) {
    json += fmt::format("{}{}", i == 0 ? "" : ",", tensor.shape[i]);
  }
  json +=
      fmt::format(R"(],"data_offsets":[{},{}]}})", begin, begin + tensor.bytes);
}

void check_writable(std::span<const TensorInfo> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    NIBBLE_CHECK(tensor.encoding.empty() && tensor.name != kMetadataName &&
                     tensor_bytes(tensor.dtype, tensor.shape) == tensor.bytes,
                 kInvalidArgument,
                 "tensor {}: found shape {} of {}{}{} in {} bytes, which "
                 "safetensors cannot hold",
                 printable(tensor.name),
                 to_string(tensor.shape),
                 dtype_name(tensor.dtype),
                 tensor.encoding.empty() ? "" : " encoded as ",
                 tensor.encoding,
                 tensor.bytes);
    names.emplace_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  NIBBLE_CHECK(twice == names.end(),
               kInvalidArgument,
               "tensor {}: found twice in one file, expected once",
               printable(*twice));
}

}  // namespace

std::optional<std::uint64_t> tensor_bytes(DType dtype, const Shape& shape) {
  std::int64_t bits = dtype_bits(dtype);
  // Elements first: a product that passes 2^63 before a later 0 is refused,
  // because Shape::elements() multiplies in this order, too.
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(elements, bits, &bits) || bits % 8 != 0) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(bits) / 8;
}

std::uint64_t safetensors_header_bytes(std::span<const std::byte> first,
                                       std::uint64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()),
                              first.size());
  if (text.starts_with(kLfsPointer)) {
    fail_with_hint(ErrorCode::kCorruptData,
                   "only a pointer was fetched: run 'git lfs pull' in the "
                   "model's directory, or download the file again",
                   "found a Git LFS pointer, expected a safetensors file");
  }
  NIBBLE_CHECK(file_bytes >= kSafetensorsLengthBytes &&
                   first.size() >= kSafetensorsLengthBytes,
               kCorruptData,
               "found {} bytes, expected at least {}",
               file_bytes,
               kSafetensorsLengthBytes);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(first[i]) << (8 * i);
  }
  NIBBLE_CHECK(length <= kMaxSafetensorsHeaderBytes,
               kCorruptData,
               "found a header length of {}, expected at most {}",
               length,
               kMaxSafetensorsHeaderBytes);
  NIBBLE_CHECK(length <= file_bytes - kSafetensorsLengthBytes,
               kCorruptData,
               "found a header length of {} in a file of {} bytes",
               length,
               file_bytes);
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view text,
                                           std::uint64_t file_bytes,
                                           std::size_t max_tensors) {
  // The JSON parser would skip a mark and take a NUL for the end.
  NIBBLE_CHECK(!text.starts_with("\xEF\xBB\xBF"),
               kCorruptData,
               "header: found a byte order mark, expected an object");
  NIBBLE_CHECK(text.find('\0') == std::string_view::npos,
               kCorruptData,
               "header: byte {}: found NUL, expected JSON",
               text.find('\0'));
  HeaderHandler handler(max_tensors);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  std::vector<Entry> entries = handler.take_entries();
  check_unique_names(entries);

  const std::uint64_t start = kSafetensorsLengthBytes + text.size();
  const std::uint64_t data_bytes = file_bytes - start;
  const std::uint64_t end = check_layout(entries);
  NIBBLE_CHECK(end == data_bytes,
               kCorruptData,
               "found {} bytes of data, expected {} from the header: the file "
               "is {}",
               data_bytes,
               end,
               end > data_bytes ? "cut short" : "too long");

  SafetensorsHeader header;
  header.metadata = handler.take_metadata();
  header.tensors.reserve(entries.size());
  header.offsets.reserve(entries.size());
  for (Entry& entry : entries) {
    header.offsets.push_back(start + entry.begin);
    header.tensors.push_back(std::move(entry.info));
  }
  return header;
}

std::string serialize_safetensors_header(std::span<const TensorInfo> tensors,
                                         const TextMetadata& metadata) {
  check_writable(tensors);
  std::string json = "{";
  if (!metadata.empty()) {
    json += quoted(std::string(kMetadataName)) + ":" +
            nlohmann::json(metadata).dump();
  }
  std::uint64_t begin = 0;
  for (const TensorInfo& tensor : tensors) {
    append_tensor(tensor, begin, json);
    begin += tensor.bytes;
  }
  json += "}";
  json.resize(round_up<std::size_t>(json.size(), 8), ' ');
  NIBBLE_CHECK(json.size() <= kMaxSafetensorsHeaderBytes,
               kInvalidArgument,
               "found a header of {} bytes, expected at most {}",
               json.size(),
               kMaxSafetensorsHeaderBytes);
  std::string bytes(kSafetensorsLengthBytes, '\0');
  for (std::size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    bytes[i] = static_cast<char>(json.size() >> (8 * i) & 0xFFu);
  }
  return bytes + json;
}

void sort_like_reference(std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
}

}  // namespace nibble::container
