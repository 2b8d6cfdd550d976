#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/core/name_regex.h"
#include "nibble/quant/core/number_spec.h"

namespace nibble::quant::compressed_tensors {

// One entry of config_groups.
struct Group {
  std::string name;
  std::vector<std::string> targets;
  std::optional<LayerSpec> spec;  // nothing = its targets stay dense
  std::string format;             // its own word, or what it comes down to
};

// What config.json says about a quantized checkpoint, checked for itself but
// not against tensors.
struct Declaration {
  std::string format;  // the global word, or "" when absent
  std::vector<Group> groups;
  std::vector<std::string> ignore;
};

// The entry that declares compressed-tensors, or nullptr when config.json has
// none: quantization_config, or compression_config as old files have it.
[[nodiscard]] const nlohmann::json* declaration_entry(
    const nlohmann::json& config);

// Parses that entry. kUnsupported, by name and with a hint, for formats and
// features that are not read here; kCorruptData for contradictions.
[[nodiscard]] Declaration parse_declaration(const nlohmann::json& entry);

// Which group applies to a module. Exact names go before regular expressions,
// these before class names; among the first two kinds, targets are tried in
// lexicographic order.
class Targets {
 public:
  // declaration must outlive the object.
  explicit Targets(const Declaration& declaration);

  struct Hit {
    const Group* group = nullptr;
    std::string_view target;
    // Reached by "Linear" alone: whether a module is a linear layer at all
    // cannot be seen from its tensors.
    bool by_class = false;
  };

  // Nothing when no target fits. Names of classes: "Linear" fits any module.
  [[nodiscard]] std::optional<Hit> find(std::string_view module) const;
  [[nodiscard]] bool ignored(std::string_view module) const;
  // Targets that name one module exactly.
  [[nodiscard]] std::vector<std::string_view> exact_targets() const;

 private:
  struct Pattern {
    std::string_view text;
    const Group* group;
    NameRegex regex;
  };

  std::map<std::string_view, const Group*, std::less<>> exact_;
  std::vector<Pattern> regexes_;
  const Group* linear_ = nullptr;
  std::set<std::string_view, std::less<>> ignore_;
  std::vector<NameRegex> ignore_regexes_;
};

}  // namespace nibble::quant::compressed_tensors
