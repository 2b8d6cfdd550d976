#include "nibble/container/torch_pickle/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "nibble/base/error.h"
#include "nibble/container/torch_pickle/pickle_value.h"

namespace nibble::container {
namespace {

// Opcodes of pickle protocol 2 that torch.save writes (Python's pickletools
// names them so).
enum Opcode : std::uint8_t {
  kMark = '(',
  kEmptyTuple = ')',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersid = 'Q',
  kReduce = 'R',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
};

// Above what a checkpoint of a million tensors needs.
constexpr std::size_t kMaxStack = 10'000'000;
constexpr std::size_t kMaxOperations = 200'000'000;

// A stack machine over the bytes of one pickle.
class Interpreter {
 public:
  explicit Interpreter(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Runs to STOP; the value left.
  PickleValue run() {
    for (std::size_t steps = 0; steps < kMaxOperations; ++steps) {
      start_ = at_;
      const auto opcode = read<std::uint8_t>();
      if (opcode == kStop) {
        return pop();
      }
      step(opcode);
      NIBBLE_CHECK(stack_.size() <= kMaxStack,
                   kCorruptData,
                   "pickle: byte {}: found more than {} values waiting",
                   start_,
                   kMaxStack);
    }
    fail(ErrorCode::kCorruptData,
         "pickle: found more than {} operations",
         kMaxOperations);
  }

  PickleArena& arena() { return arena_; }

 private:
  void step(std::uint8_t opcode) {
    switch (opcode) {
      case kProto:
        protocol();
        break;
      case kMark:
        marks_.push_back(stack_.size());
        break;
      case kEmptyTuple:
        push_sequence(PickleKind::kTuple, {});
        break;
      case kEmptyList:
        push_sequence(PickleKind::kList, {});
        break;
      case kEmptyDict:
        arena_.dicts.emplace_back();
        push(PickleKind::kDict, arena_.dicts.size() - 1);
        break;
      case kNone:
        push(PickleKind::kNone, 0);
        break;
      case kNewTrue:
      case kNewFalse:
        push(PickleKind::kBool, opcode == kNewTrue ? 1 : 0);
        break;
      case kBinInt:
        push_integer(read<std::int32_t>());
        break;
      case kBinInt1:
        push_integer(read<std::uint8_t>());
        break;
      case kBinInt2:
        push_integer(read<std::uint16_t>());
        break;
      case kLong1:
        push_integer(read_long(read<std::uint8_t>()));
        break;
      case kBinFloat:
        read<std::uint64_t>();  // big-endian; no tensor depends on its value
        push(PickleKind::kReal, 0);
        break;
      case kBinUnicode:
        push_text(PickleKind::kText, read_text(read<std::uint32_t>()));
        break;
      case kShortBinString:
        push_text(PickleKind::kText, read_text(read<std::uint8_t>()));
        break;
      case kBinPut:
        memo_[read<std::uint8_t>()] = top();
        break;
      case kLongBinPut:
        memo_[read<std::uint32_t>()] = top();
        break;
      case kBinGet:
        push_memo(read<std::uint8_t>());
        break;
      case kLongBinGet:
        push_memo(read<std::uint32_t>());
        break;
      default:
        combine(opcode);
    }
  }

  // Opcodes that take values from the stack.
  void combine(std::uint8_t opcode) {
    switch (opcode) {
      case kTuple:
        push_sequence(PickleKind::kTuple, pop_to_mark());
        break;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        push_sequence(PickleKind::kTuple, pop_many(opcode - kTuple1 + 1u));
        break;
      case kSetItem:
        set_items(pop_many(2));
        break;
      case kSetItems:
        set_items(pop_to_mark());
        break;
      case kAppend:
        append_items(pop_many(1));
        break;
      case kAppends:
        append_items(pop_to_mark());
        break;
      case kGlobal:
        global();
        break;
      case kReduce:
      case kNewObj: {
        const PickleValue arguments = pop();
        const PickleValue callee = pop();
        const std::string name = text_of(callee, PickleKind::kGlobal);
        stack_.push_back(call_global(arena_, name, tuple_of(arguments)));
        break;
      }
      case kBuild:
        pop();  // state such as _metadata: nothing here depends on it
        top();
        break;
      case kBinPersid: {
        const PickleValue id = pop();
        stack_.push_back(load_persistent(arena_, tuple_of(id)));
        break;
      }
      default:
        fail_with_hint(ErrorCode::kUnsupported,
                       "only plain dictionaries of tensors written by "
                       "torch.save are read; nothing is ever executed",
                       "pickle: byte {}: found opcode 0x{:02x}, expected one "
                       "that torch.save writes for tensors",
                       start_,
                       opcode);
    }
  }

  void protocol() {
    const auto version = read<std::uint8_t>();
    NIBBLE_CHECK(version == 2,
                 kUnsupported,
                 "pickle: found protocol {}, expected 2",
                 version);
  }

  void global() {
    std::string name = read_line();
    name += ' ';
    name += read_line();
    if (!is_allowed_global(name)) {
      fail_with_hint(ErrorCode::kUnsupported,
                     "the file wants to construct an object that is no "
                     "tensor; save it again as a plain dictionary of tensors",
                     "pickle: byte {}: found global {}, expected one of those "
                     "that rebuild tensors",
                     start_,
                     printable(name));
    }
    push_text(PickleKind::kGlobal, std::move(name));
  }

  void set_items(const std::vector<PickleValue>& items) {
    const PickleValue target = top();
    if (target.kind == PickleKind::kIgnored) {
      return;
    }
    NIBBLE_CHECK(target.kind == PickleKind::kDict && items.size() % 2 == 0,
                 kCorruptData,
                 "pickle: byte {}: found items for {}, expected a dictionary",
                 start_,
                 pickle_kind_name(target.kind));
    auto& dict = arena_.dicts[static_cast<std::size_t>(target.number)];
    for (std::size_t i = 0; i < items.size(); i += 2) {
      dict.emplace_back(items[i], items[i + 1]);
    }
  }

  void append_items(const std::vector<PickleValue>& items) {
    const PickleValue target = top();
    NIBBLE_CHECK(target.kind == PickleKind::kList,
                 kCorruptData,
                 "pickle: byte {}: found items for {}, expected a list",
                 start_,
                 pickle_kind_name(target.kind));
    auto& list = arena_.sequences[static_cast<std::size_t>(target.number)];
    list.insert(list.end(), items.begin(), items.end());
  }

  template <typename T>
  T read() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  // A two's complement number of `count` bytes, little-endian.
  std::int64_t read_long(std::size_t count) {
    NIBBLE_CHECK(count <= 8,
                 kCorruptData,
                 "pickle: byte {}: found an integer of {} bytes, expected at "
                 "most 8",
                 start_,
                 count);
    const auto bytes = take(count);
    std::uint64_t value = 0;
    for (std::size_t i = count; i-- > 0;) {
      value = (value << 8) | std::to_integer<std::uint64_t>(bytes[i]);
    }
    if (count > 0 && count < 8 &&
        (bytes[count - 1] & std::byte{0x80}) != std::byte{0}) {
      value |= ~std::uint64_t{0} << (8 * count);
    }
    return static_cast<std::int64_t>(value);
  }

  std::string read_text(std::size_t count) {
    const auto bytes = take(count);
    return {reinterpret_cast<const char*>(bytes.data()), count};
  }

  std::string read_line() {
    std::string line;
    for (char c = read<char>(); c != '\n'; c = read<char>()) {
      line += c;
    }
    return line;
  }

  std::span<const std::byte> take(std::size_t count) {
    NIBBLE_CHECK(count <= bytes_.size() - at_,
                 kCorruptData,
                 "pickle: byte {}: found the end, expected {} more bytes",
                 at_,
                 count);
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }

  void push(PickleKind kind, std::size_t number) {
    stack_.push_back({kind, static_cast<std::int64_t>(number)});
  }

  void push_integer(std::int64_t number) {
    stack_.push_back({PickleKind::kInteger, number});
  }

  void push_text(PickleKind kind, std::string text) {
    arena_.texts.push_back(std::move(text));
    push(kind, arena_.texts.size() - 1);
  }

  void push_sequence(PickleKind kind, std::vector<PickleValue> items) {
    arena_.sequences.push_back(std::move(items));
    push(kind, arena_.sequences.size() - 1);
  }

  void push_memo(std::uint32_t index) {
    const auto found = memo_.find(index);
    NIBBLE_CHECK(found != memo_.end(),
                 kCorruptData,
                 "pickle: byte {}: found memo {}, which nothing stored",
                 start_,
                 index);
    stack_.push_back(found->second);
  }

  PickleValue top() const {
    NIBBLE_CHECK(stack_.size() > (marks_.empty() ? 0 : marks_.back()),
                 kCorruptData,
                 "pickle: byte {}: found an empty stack",
                 start_);
    return stack_.back();
  }

  PickleValue pop() {
    const PickleValue value = top();
    stack_.pop_back();
    return value;
  }

  std::vector<PickleValue> pop_many(std::size_t count) {
    std::vector<PickleValue> values(count);
    for (std::size_t i = count; i-- > 0;) {
      values[i] = pop();
    }
    return values;
  }

  std::vector<PickleValue> pop_to_mark() {
    NIBBLE_CHECK(!marks_.empty(),
                 kCorruptData,
                 "pickle: byte {}: found no mark",
                 start_);
    const auto first =
        stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleValue> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  const std::string& text_of(const PickleValue& value, PickleKind kind) const {
    NIBBLE_CHECK(value.kind == kind,
                 kCorruptData,
                 "pickle: byte {}: found {}, expected {}",
                 start_,
                 pickle_kind_name(value.kind),
                 pickle_kind_name(kind));
    return arena_.texts[static_cast<std::size_t>(value.number)];
  }

  const std::vector<PickleValue>& tuple_of(const PickleValue& value) const {
    NIBBLE_CHECK(value.kind == PickleKind::kTuple,
                 kCorruptData,
                 "pickle: byte {}: found {}, expected a tuple",
                 start_,
                 pickle_kind_name(value.kind));
    return arena_.sequences[static_cast<std::size_t>(value.number)];
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::size_t start_ = 0;  // of the current operation
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleValue> memo_;
  PickleArena arena_;
};

using Dict = std::vector<std::pair<PickleValue, PickleValue>>;

// The dictionary of tensors: the top one, or what it holds under "model".
const Dict& tensor_dict(const PickleArena& arena, const PickleValue& top) {
  NIBBLE_CHECK(top.kind == PickleKind::kDict,
               kUnsupported,
               "torch file: found {}, expected a dictionary of tensors",
               pickle_kind_name(top.kind));
  const Dict& dict = arena.dicts[static_cast<std::size_t>(top.number)];
  for (const auto& [key, value] : dict) {
    if (key.kind == PickleKind::kText && value.kind == PickleKind::kDict &&
        arena.texts[static_cast<std::size_t>(key.number)] == "model") {
      return arena.dicts[static_cast<std::size_t>(value.number)];
    }
  }
  return dict;
}

// ---- writing ---------------------------------------------------------------

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_text(std::string& out, std::string_view text) {
  out += static_cast<char>(kBinUnicode);
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

void put_integer(std::string& out, std::int64_t value) {
  if (value >= 0 && value <= 0x7FFFFFFF) {
    out += static_cast<char>(kBinInt);
    put(out, static_cast<std::int32_t>(value));
  } else {
    out += static_cast<char>(kLong1);
    out += static_cast<char>(8);
    put(out, value);
  }
}

void put_global(std::string& out,
                std::string_view module,
                std::string_view name) {
  out += static_cast<char>(kGlobal);
  out += module;
  out += '\n';
  out += name;
  out += '\n';
}

void put_integers(std::string& out, std::span<const std::int64_t> values) {
  out += static_cast<char>(kMark);
  for (const std::int64_t value : values) {
    put_integer(out, value);
  }
  out += static_cast<char>(kTuple);
}

void put_tensor(std::string& out, const PickledTensor& tensor) {
  const std::string_view storage_class = storage_class_of(tensor.dtype);
  const bool untyped = storage_class.empty();
  put_global(out,
             "torch._utils",
             untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  out += static_cast<char>(kMark);
  out += static_cast<char>(kMark);
  put_text(out, "storage");
  if (untyped) {
    put_global(out, "torch.storage", "UntypedStorage");
  } else {
    put_global(out, "torch", storage_class);
  }
  put_text(out, tensor.storage);
  put_text(out, "cpu");
  put_integer(out,
              static_cast<std::int64_t>(
                  untyped ? tensor.storage_bytes
                          : tensor.storage_bytes / dtype_bytes(tensor.dtype)));
  out += static_cast<char>(kTuple);
  out += static_cast<char>(kBinPersid);
  put_integer(out, tensor.offset);
  put_integers(out, tensor.shape);
  put_integers(out, tensor.stride);
  out += static_cast<char>(kNewFalse);
  put_global(out, "collections", "OrderedDict");
  out += static_cast<char>(kEmptyTuple);
  out += static_cast<char>(kReduce);
  if (untyped) {
    put_global(out, "torch", torch_name_of(tensor.dtype));
  }
  out += static_cast<char>(kTuple);
  out += static_cast<char>(kReduce);
}

}  // namespace

PickledCheckpoint read_pickle(std::span<const std::byte> bytes) {
  Interpreter interpreter(bytes);
  const PickleValue top = interpreter.run();
  PickleArena& arena = interpreter.arena();
  PickledCheckpoint checkpoint;
  std::unordered_set<std::string> seen;
  for (const auto& [key, value] : tensor_dict(arena, top)) {
    NIBBLE_CHECK(key.kind == PickleKind::kText,
                 kUnsupported,
                 "torch file: found {} as a key, expected a name",
                 pickle_kind_name(key.kind));
    const std::string& name = arena.texts[static_cast<std::size_t>(key.number)];
    NIBBLE_CHECK(seen.insert(name).second,
                 kCorruptData,
                 "torch file: found {} twice, expected once",
                 printable(name));
    if (value.kind != PickleKind::kTensor) {
      checkpoint.ignored.push_back(name);
      continue;
    }
    checkpoint.tensors.push_back(
        arena.tensors[static_cast<std::size_t>(value.number)]);
    checkpoint.tensors.back().name = name;
  }
  return checkpoint;
}

std::string write_pickle(std::span<const PickledTensor> tensors) {
  std::string out;
  out += static_cast<char>(kProto);
  out += '\x02';
  out += static_cast<char>(kEmptyDict);
  out += static_cast<char>(kMark);
  for (const PickledTensor& tensor : tensors) {
    put_text(out, tensor.name);
    put_tensor(out, tensor);
  }
  out += static_cast<char>(kSetItems);
  out += static_cast<char>(kStop);
  return out;
}

}  // namespace nibble::container
