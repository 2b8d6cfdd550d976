#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nibble/model/family.h"
#include "nibble/quant/core/number_spec.h"

namespace nibble::quant {

// What is known of an engine and a kind of layer. kUnknown: nothing that was
// read says it, or versions differ.
enum class Verdict { kAccepted, kUnknown, kRefused };

// "accepts", "not known", "refuses".
[[nodiscard]] std::string_view verdict_name(Verdict verdict);

// Modules that engines treat apart.
enum class ModuleKind { kLinear, kExpert, kHead, kEmbedding, kRouter };

[[nodiscard]] std::string_view module_kind_name(ModuleKind kind);
[[nodiscard]] ModuleKind module_kind_of(model::Role role);

// How activations reach the layer.
enum class InputKind { kAny, kNone, kToken, kGroup };

enum class Symmetry { kAny, kSymmetric, kAsymmetric };

// Bits of EngineRule::grains.
inline constexpr std::uint8_t kByTensor = 1;
inline constexpr std::uint8_t kByChannel = 2;
inline constexpr std::uint8_t kByGroup = 4;
inline constexpr std::uint8_t kByBlock = 8;
inline constexpr std::uint8_t kByAny = 15;

// One row of the table: what an engine does with quantized layers of a kind.
// Of an engine's rows the first that fits a layer counts; a layer that none
// fits is not known. Every row names the source that says so.
struct EngineRule {
  std::string_view engine = {};
  ModuleKind kind = ModuleKind::kLinear;
  std::string_view family = {};  // of model/family.h; "" = any
  // Last parts of module names; empty = any.
  std::span<const std::string_view> names = {};
  std::string_view number = {};    // "int", "fp8", "" = any
  std::span<const int> bits = {};  // empty = any
  std::uint8_t grains = kByAny;
  std::span<const std::int64_t> groups = {};  // of kByGroup; empty = any
  Symmetry symmetry = Symmetry::kAny;
  InputKind inputs = InputKind::kAny;
  Verdict verdict = Verdict::kUnknown;
  // Of an accepted layer, what one rank's rows and columns must be multiples
  // of; misaligned is the verdict otherwise.
  std::int64_t rows_multiple = 1;
  std::int64_t columns_multiple = 1;
  Verdict misaligned = Verdict::kRefused;
  std::string_view needs = {};   // hardware or version, "" = nothing said
  std::string_view note = {};    // why, or what to know
  std::string_view source = {};  // key of engine_sources()
};

[[nodiscard]] std::span<const EngineRule> engine_rules();

// How an engine cuts a model over ranks.
struct EngineCuts {
  std::string_view engine = {};
  bool known = false;  // else the note says what is not known
  // More ranks than heads of keys and values: each head stands on several.
  bool repeats_kv_heads = false;
  // The vocabulary is padded to a multiple of this; 0 = it must divide.
  std::int64_t vocabulary_padding = 0;
  // Each part of a quantized matrix ends at a whole group or block.
  bool whole_groups = true;
  // Different schemes in one checkpoint; 0 = any number.
  int most_schemes = 0;
  std::string_view note = {};
  std::string_view source = {};         // of the cuts
  std::string_view scheme_source = {};  // of most_schemes
};

// One of each engine, in the order in which they are listed everywhere.
[[nodiscard]] std::span<const EngineCuts> engines();

// Where a fact stands: what was read, and which version of it.
struct EngineSource {
  std::string_view key;
  std::string_view document;
  std::string_view version;  // commit or date
};

[[nodiscard]] std::span<const EngineSource> engine_sources();

// The engine of that name; kInvalidArgument with the nearest name otherwise.
[[nodiscard]] const EngineCuts& engine_named(std::string_view name);

// Whether a rule is about such a layer of a model of that family.
[[nodiscard]] bool fits(const EngineRule& rule,
                        std::string_view family,
                        std::string_view module,
                        model::Role role,
                        const LayerSpec& spec);

// For tables: "int 4, 8 bits by group 32, 64, 128 or channel, symmetric".
[[nodiscard]] std::string describe(const EngineRule& rule);

}  // namespace nibble::quant
