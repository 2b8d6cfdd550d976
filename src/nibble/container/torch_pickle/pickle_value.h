#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nibble/container/torch_pickle/pickle.h"

namespace nibble::container {

enum class PickleKind {
  kNone,
  kBool,
  kInteger,
  kReal,
  kText,
  kTuple,
  kList,
  kDict,
  kGlobal,  // a name on the allow-list, not an object
  kStorage,
  kTensor,
  kIgnored,  // an object whose content no tensor depends on
};

// Values refer to their contents by index into the arena of one
// interpretation: nothing is freed piecemeal, so neither cycles nor deep
// nesting can leak or overflow the stack.
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  std::int64_t number = 0;  // integer, bool, or index into the arena
};

struct PickleStorage {
  std::string key;
  std::uint64_t bytes = 0;
  std::optional<DType> dtype;  // nothing: untyped, counted in bytes
};

struct PickleArena {
  std::deque<std::string> texts;  // also names of globals
  std::deque<std::vector<PickleValue>> sequences;
  std::deque<std::vector<std::pair<PickleValue, PickleValue>>> dicts;
  std::deque<PickleStorage> storages;
  std::deque<PickledTensor> tensors;
};

// Name of a kind for messages.
[[nodiscard]] std::string_view pickle_kind_name(PickleKind kind);

// Whether "module name" stands on the allow-list.
[[nodiscard]] bool is_allowed_global(std::string_view global);

// The dtype of "torch BFloat16Storage" or "torch float8_e4m3fn", or nothing.
[[nodiscard]] std::optional<DType> dtype_of_global(std::string_view global);

// The storage class that torch.save names for a dtype ("BFloat16Storage"), or
// "" when the dtype is written through an untyped storage.
[[nodiscard]] std::string_view storage_class_of(DType dtype);

// The name of a dtype in torch: "bfloat16", "float8_e4m3fn"; kUnsupported for
// one that torch lacks.
[[nodiscard]] std::string_view torch_name_of(DType dtype);

// Calls an allowed global with a tuple of arguments.
[[nodiscard]] PickleValue call_global(
    PickleArena& arena,
    std::string_view global,
    const std::vector<PickleValue>& arguments);

// Resolves a persistent id: ('storage', class, key, location, count).
[[nodiscard]] PickleValue load_persistent(PickleArena& arena,
                                          const std::vector<PickleValue>& id);

}  // namespace nibble::container
