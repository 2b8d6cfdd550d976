#include "nibble/quant/formats/compressed_tensors/config/target_patterns.h"

#include <algorithm>
#include <map>
#include <set>

#include "nibble/base/error.h"
#include "nibble/quant/core/name_regex.h"

namespace nibble::quant::compressed_tensors {
namespace {

// How much of a name a pattern leaves open.
enum class Detail {
  kKind,    // every number
  kLayers,  // every number but the first, the layer's
  kExact,   // nothing
};

bool is_number(std::string_view part) {
  return !part.empty() &&
         part.find_first_not_of("0123456789") == std::string_view::npos;
}

// Appends one part of a name, every character literal.
void append_literal(std::string& pattern, std::string_view part) {
  for (const char c : part) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                       (c >= 'a' && c <= 'z') || c == '_' || c == '-';
    pattern += plain ? "" : "\\";
    pattern += c;
  }
}

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t dot = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parts;
}

// A name in two pieces: what stands before the last part, numbers opened up,
// and the last part. The layer's number is cut out when it is kept.
struct Split {
  std::string before;  // ".*layers\.[0-9]+\.mlp\."; kLayers: # for the layer
  std::string layer;   // kLayers only
  std::string last;    // "gate_proj"
};

Split split(std::string_view name, Detail detail) {
  std::vector<std::string_view> parts = parts_of(name);
  Split result;
  append_literal(result.last, parts.back());
  parts.pop_back();
  // Engines rename what stands before the layers, so it is left open.
  const auto layers = std::find(parts.begin(), parts.end(), "layers");
  if (layers != parts.end()) {
    parts.erase(parts.begin(), layers);
    result.before = ".*";
  }
  for (const std::string_view part : parts) {
    if (!is_number(part)) {
      append_literal(result.before, part);
    } else if (detail == Detail::kLayers && result.layer.empty()) {
      result.layer = std::string(part);
      result.before += '#';
    } else {
      result.before += "[0-9]+";
    }
    result.before += "\\.";
  }
  return result;
}

// "(a|b|c)", or "a" alone.
std::string alternatives(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "" : "|";
    text += word;
  }
  return words.size() == 1 ? text : "(" + text + ")";
}

std::vector<std::string> patterns_of(std::span<const std::string_view> names,
                                     Detail detail) {
  if (detail == Detail::kExact) {
    return {names.begin(), names.end()};
  }
  // The last parts that occur behind each beginning, in each set of layers.
  std::map<std::pair<std::string, std::string>, std::set<std::string>> layers;
  for (const std::string_view name : names) {
    const Split parts = split(name, detail);
    layers[{parts.before, parts.last}].insert(parts.layer);
  }
  std::map<std::pair<std::string, std::set<std::string>>, std::set<std::string>>
      lasts;
  for (const auto& [key, numbers] : layers) {
    lasts[{key.first, numbers}].insert(key.second);
  }
  std::vector<std::string> patterns;
  for (const auto& [key, words] : lasts) {
    std::string before = key.first;
    const std::size_t hole = before.find('#');
    if (hole != std::string::npos) {
      before.replace(hole, 1, alternatives(key.second));
    }
    patterns.push_back("re:" + before + alternatives(words) + "$");
  }
  return patterns;
}

bool fits_any(const std::vector<std::string>& patterns,
              std::span<const std::string_view> names) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& text) {
    const NameRegex regex(text.substr(3), ErrorCode::kInternal);
    return std::any_of(names.begin(), names.end(), [&](auto name) {
      return regex.fits_start(name);
    });
  });
}

bool disjoint(std::span<const std::vector<std::string_view>> groups,
              const std::vector<std::vector<std::string>>& targets) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (std::size_t j = 0; j < groups.size(); ++j) {
      if (i != j && fits_any(targets[i], groups[j])) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::vector<std::vector<std::string>> target_patterns(
    std::span<const std::vector<std::string_view>> groups) {
  std::vector<std::vector<std::string>> targets;
  for (const Detail detail : {Detail::kKind, Detail::kLayers}) {
    targets.clear();
    for (const auto& names : groups) {
      targets.push_back(patterns_of(names, detail));
    }
    if (disjoint(groups, targets)) {
      return targets;
    }
  }
  targets.clear();
  for (const auto& names : groups) {
    targets.push_back(patterns_of(names, Detail::kExact));
  }
  return targets;
}

}  // namespace nibble::quant::compressed_tensors
