#include "nibble/container/torch_pickle/pickle_value.h"

#include <algorithm>
#include <array>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/tensor/view.h"

namespace nibble::container {
namespace {

struct DTypeNames {
  DType dtype;
  std::string_view storage;  // "" = none: untyped
  std::string_view name;
};

// Legacy storage classes and dtype objects of torch.
constexpr std::array kDTypes{
    DTypeNames{DType::kBF16, "BFloat16Storage", "bfloat16"},
    DTypeNames{DType::kF16, "HalfStorage", "float16"},
    DTypeNames{DType::kF32, "FloatStorage", "float32"},
    DTypeNames{DType::kF64, "DoubleStorage", "float64"},
    DTypeNames{DType::kI8, "CharStorage", "int8"},
    DTypeNames{DType::kU8, "ByteStorage", "uint8"},
    DTypeNames{DType::kI16, "ShortStorage", "int16"},
    DTypeNames{DType::kI32, "IntStorage", "int32"},
    DTypeNames{DType::kI64, "LongStorage", "int64"},
    DTypeNames{DType::kBool, "BoolStorage", "bool"},
    DTypeNames{DType::kC64, "ComplexFloatStorage", "complex64"},
    DTypeNames{DType::kF8E4M3, "", "float8_e4m3fn"},
    DTypeNames{DType::kF8E5M2, "", "float8_e5m2"},
    DTypeNames{DType::kF8E4M3Fnuz, "", "float8_e4m3fnuz"},
    DTypeNames{DType::kF8E5M2Fnuz, "", "float8_e5m2fnuz"},
    DTypeNames{DType::kF8E8M0, "", "float8_e8m0fnu"},
    DTypeNames{DType::kU16, "", "uint16"},
    DTypeNames{DType::kU32, "", "uint32"},
    DTypeNames{DType::kU64, "", "uint64"},
};

constexpr std::string_view kRebuildV2 = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view kRebuildV3 = "torch._utils _rebuild_tensor_v3";
constexpr std::string_view kParameter = "torch._utils _rebuild_parameter";
constexpr std::string_view kUntyped = "torch.storage UntypedStorage";
constexpr std::string_view kOrderedDict = "collections OrderedDict";

constexpr std::array kGlobals{
    kRebuildV2,
    kRebuildV3,
    kParameter,
    kUntyped,
    kOrderedDict,
    std::string_view("torch Size"),
    std::string_view("torch device"),
    std::string_view("torch.nn.parameter Parameter"),
    std::string_view("_codecs encode"),
    std::string_view("_io BytesIO"),
    std::string_view("__builtin__ bytes"),
};

std::int64_t integer(const PickleValue& value, std::string_view what) {
  NIBBLE_CHECK(value.kind == PickleKind::kInteger,
               kCorruptData,
               "{}: found {}, expected an integer",
               what,
               pickle_kind_name(value.kind));
  return value.number;
}

const std::string& text(const PickleArena& arena,
                        const PickleValue& value,
                        PickleKind kind,
                        std::string_view what) {
  NIBBLE_CHECK(value.kind == kind,
               kCorruptData,
               "{}: found {}, expected {}",
               what,
               pickle_kind_name(value.kind),
               pickle_kind_name(kind));
  return arena.texts[static_cast<std::size_t>(value.number)];
}

std::vector<std::int64_t> integers(const PickleArena& arena,
                                   const PickleValue& value,
                                   std::string_view what) {
  NIBBLE_CHECK(value.kind == PickleKind::kTuple,
               kCorruptData,
               "{}: found {}, expected a tuple of integers",
               what,
               pickle_kind_name(value.kind));
  const auto& items = arena.sequences[static_cast<std::size_t>(value.number)];
  NIBBLE_CHECK(items.size() <= Shape::kMaxRank,
               kUnsupported,
               "{}: found {} dimensions, expected at most {}",
               what,
               items.size(),
               Shape::kMaxRank);
  std::vector<std::int64_t> numbers;
  for (const PickleValue& item : items) {
    numbers.push_back(integer(item, what));
  }
  return numbers;
}

// Throws unless every element that shape and stride reach lies in the storage
// and no two of them can coincide through a zero stride.
void check_extent(const PickledTensor& tensor, std::uint64_t storage_elements) {
  NIBBLE_CHECK(tensor.shape.size() == tensor.stride.size(),
               kCorruptData,
               "tensor: found {} sizes and {} strides, expected equal counts",
               tensor.shape.size(),
               tensor.stride.size());
  std::optional<std::int64_t> last = tensor.offset;
  std::optional<std::int64_t> elements = 1;
  bool valid = tensor.offset >= 0;
  for (std::size_t i = 0; i < tensor.shape.size() && valid; ++i) {
    const std::int64_t size = tensor.shape[i];
    valid = size >= 0 && tensor.stride[i] >= 0;
    elements = valid ? checked_multiply(*elements, size) : std::nullopt;
    const auto reach = valid && size > 0
                           ? checked_multiply(size - 1, tensor.stride[i])
                           : std::optional<std::int64_t>(0);
    last = reach && last ? checked_add(*last, *reach) : std::nullopt;
    valid = valid && elements && last;
  }
  NIBBLE_CHECK(
      valid,
      kCorruptData,
      "tensor: found negative or overflowing sizes, strides or offset");
  NIBBLE_CHECK(*elements == 0 ||
                   (static_cast<std::uint64_t>(*last) < storage_elements &&
                    static_cast<std::uint64_t>(*elements) <= storage_elements),
               kCorruptData,
               "tensor: found {} elements reaching element {} of storage {}, "
               "expected at most its {}",
               *elements,
               *last,
               printable(tensor.storage),
               storage_elements);
}

PickleValue rebuild_tensor(PickleArena& arena,
                           const std::vector<PickleValue>& arguments,
                           bool with_dtype) {
  // storage, offset, size, stride, requires_grad, hooks[, dtype][, metadata]
  const std::size_t least = with_dtype ? 7 : 6;
  NIBBLE_CHECK(arguments.size() >= least && arguments.size() <= least + 1 &&
                   arguments[0].kind == PickleKind::kStorage,
               kCorruptData,
               "tensor: found {} arguments, expected a storage and {} more",
               arguments.size(),
               least - 1);
  NIBBLE_CHECK(
      arguments.size() == least || arguments[least].kind != PickleKind::kDict ||
          arena.dicts[static_cast<std::size_t>(arguments[least].number)]
              .empty(),
      kUnsupported,
      "tensor: found metadata (a conjugate or negated view), expected "
      "a plain tensor");
  const PickleStorage& storage =
      arena.storages[static_cast<std::size_t>(arguments[0].number)];
  std::optional<DType> dtype = storage.dtype;
  if (with_dtype) {
    dtype = dtype_of_global(
        text(arena, arguments[6], PickleKind::kGlobal, "tensor dtype"));
  }
  NIBBLE_CHECK(dtype.has_value(),
               kCorruptData,
               "tensor: found an untyped storage, expected a dtype with it");
  PickledTensor tensor;
  tensor.dtype = *dtype;
  tensor.storage = storage.key;
  tensor.storage_bytes = storage.bytes;
  tensor.offset = integer(arguments[1], "tensor offset");
  tensor.shape = integers(arena, arguments[2], "tensor sizes");
  tensor.stride = integers(arena, arguments[3], "tensor strides");
  check_extent(tensor, storage.bytes / dtype_bytes(*dtype));
  arena.tensors.push_back(std::move(tensor));
  return {PickleKind::kTensor,
          static_cast<std::int64_t>(arena.tensors.size()) - 1};
}

}  // namespace

std::string_view pickle_kind_name(PickleKind kind) {
  constexpr std::array<std::string_view, 12> kNames{"None",
                                                    "a bool",
                                                    "an integer",
                                                    "a float",
                                                    "text",
                                                    "a tuple",
                                                    "a list",
                                                    "a dictionary",
                                                    "a global name",
                                                    "a storage",
                                                    "a tensor",
                                                    "an opaque object"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool is_allowed_global(std::string_view global) {
  return std::ranges::count(kGlobals, global) != 0 ||
         dtype_of_global(global).has_value();
}

std::optional<DType> dtype_of_global(std::string_view global) {
  constexpr std::string_view kModule = "torch ";
  if (!global.starts_with(kModule)) {
    return std::nullopt;
  }
  const std::string_view name = global.substr(kModule.size());
  for (const DTypeNames& entry : kDTypes) {
    if (name == entry.name ||
        (!entry.storage.empty() && name == entry.storage)) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

std::string_view storage_class_of(DType dtype) {
  const auto* entry = std::ranges::find(kDTypes, dtype, &DTypeNames::dtype);
  return entry == kDTypes.end() ? "" : entry->storage;
}

std::string_view torch_name_of(DType dtype) {
  const auto* entry = std::ranges::find(kDTypes, dtype, &DTypeNames::dtype);
  NIBBLE_CHECK(entry != kDTypes.end(),
               kUnsupported,
               "torch file: found dtype {}, expected one that torch has",
               dtype_name(dtype));
  return entry->name;
}

PickleValue call_global(PickleArena& arena,
                        std::string_view global,
                        const std::vector<PickleValue>& arguments) {
  if (global == kRebuildV2 || global == kRebuildV3) {
    return rebuild_tensor(arena, arguments, global == kRebuildV3);
  }
  if (global == kParameter) {
    NIBBLE_CHECK(!arguments.empty() && arguments[0].kind == PickleKind::kTensor,
                 kCorruptData,
                 "parameter: found no tensor, expected one");
    return arguments[0];
  }
  if (global == kOrderedDict) {
    NIBBLE_CHECK(arguments.empty(),
                 kUnsupported,
                 "OrderedDict: found {} arguments, expected none",
                 arguments.size());
    arena.dicts.emplace_back();
    return {PickleKind::kDict,
            static_cast<std::int64_t>(arena.dicts.size()) - 1};
  }
  if (global == "torch Size") {
    NIBBLE_CHECK(arguments.size() == 1, kCorruptData, "Size: found no sizes");
    return arguments[0];
  }
  return {PickleKind::kIgnored, 0};
}

PickleValue load_persistent(PickleArena& arena,
                            const std::vector<PickleValue>& id) {
  NIBBLE_CHECK(
      id.size() == 5 &&
          text(arena, id[0], PickleKind::kText, "persistent id") == "storage",
      kCorruptData,
      "persistent id: found {} parts, expected the five of a storage",
      id.size());
  const std::string& global =
      text(arena, id[1], PickleKind::kGlobal, "storage class");
  PickleStorage storage;
  const std::string& key = text(arena, id[2], PickleKind::kText, "storage key");
  // Keys are decimal numbers; the cap keeps repeated ids from multiplying a
  // long text.
  NIBBLE_CHECK(key.size() <= 32,
               kCorruptData,
               "storage key: found {} characters, expected a number",
               key.size());
  storage.key = key;
  const std::int64_t count = integer(id[4], "storage size");
  std::uint64_t item_bytes = 1;
  if (global != kUntyped) {
    storage.dtype = dtype_of_global(global);
    NIBBLE_CHECK(storage.dtype.has_value(),
                 kCorruptData,
                 "storage class: found {}, expected a storage",
                 printable(global));
    item_bytes = dtype_bytes(*storage.dtype);
  }
  const auto bytes =
      count < 0
          ? std::nullopt
          : checked_multiply(static_cast<std::uint64_t>(count), item_bytes);
  NIBBLE_CHECK(bytes.has_value(),
               kCorruptData,
               "storage {}: found {} elements",
               printable(storage.key),
               count);
  storage.bytes = *bytes;
  arena.storages.push_back(std::move(storage));
  return {PickleKind::kStorage,
          static_cast<std::int64_t>(arena.storages.size()) - 1};
}

}  // namespace nibble::container
