#include "nibble/quant/recipe/dead_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "nibble/base/error.h"
#include "nibble/base/units.h"

namespace nibble::quant {
namespace {

// The dot-separated parts of a name or glob.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t dot = std::min(text.find('.', begin), text.size());
    parts.push_back(text.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parts;
}

// What the writer of a pattern that fits nothing may have meant: the same name
// below a prefix, else a part that is misspelt, else the nearest whole name.
std::string meant(const Pattern& pattern,
                  std::span<const LinearModule> linears) {
  const std::string_view text = pattern.text();
  for (const LinearModule& linear : linears) {
    if (linear.role == model::Role::kEmbedding && pattern.fits(linear.module)) {
      return fmt::format(
          "an embedding table is reached by its name alone: \"{}\"",
          linear.module);
    }
  }
  if (text.starts_with("re:")) {
    return fmt::format(
        "a regular expression must fit the whole name, for instance {}",
        linears.front().module);
  }
  std::set<std::string_view> words;
  std::vector<std::string_view> names;
  for (const LinearModule& linear : linears) {
    const std::string_view name = linear.module;
    if (name.size() > text.size() && name.ends_with(text) &&
        name[name.size() - text.size() - 1] == '.') {
      return fmt::format("did you mean {} or *.{}?", name, text);
    }
    names.push_back(name);
    const auto parts = parts_of(name);
    words.insert(parts.begin(), parts.end());
  }
  for (const std::string_view part : parts_of(text)) {
    const bool wild = part.find_first_of("*?") != std::string_view::npos;
    if (!wild && !words.contains(part)) {
      const std::string near = nearest_word(part, words);
      if (!near.empty()) {
        return fmt::format("did you mean {} instead of {}?", near, part);
      }
    }
  }
  const std::string near = nearest_word(text, names);
  return near.empty() ? fmt::format("the first of them is {}", names.front())
                      : fmt::format("did you mean {}?", near);
}

void check_patterns(std::size_t rule,
                    std::span<const Pattern> patterns,
                    const std::unordered_set<std::string_view>& names,
                    std::span<const LinearModule> linears) {
  for (const Pattern& pattern : patterns) {
    const bool fits =
        pattern.is_exact()
            ? names.contains(pattern.text())
            : std::any_of(
                  linears.begin(), linears.end(), [&](const auto& linear) {
                    return reaches(pattern, linear);
                  });
    if (!fits) {
      fail_with_hint(
          ErrorCode::kBadRecipe,
          meant(pattern, linears),
          "rules[{}].match: found the pattern '{}', expected one that fits at "
          "least one of the model's {} linears",
          rule,
          printable(pattern.text()),
          std::count_if(linears.begin(), linears.end(), [](const auto& each) {
            return each.role != model::Role::kEmbedding;
          }));
    }
  }
}

[[noreturn]] void report_dead(std::size_t rule,
                              const RulePatterns& rules,
                              std::span<const LinearModule> linears,
                              std::span<const Decision> decisions) {
  // Who decided the linears that this rule fits.
  std::map<std::string, std::size_t> before;
  bool kept_by_default = false;
  for (std::size_t i = 0; i < linears.size(); ++i) {
    if (rules.reaches_any(rule, linears[i])) {
      const auto decided = decisions[i].rule;
      kept_by_default = kept_by_default || !decided;
      ++before[decided ? fmt::format("rules[{}]", *decided)
                       : std::string("the family's keep list")];
    }
  }
  std::string deciders;
  for (const auto& [who, count] : before) {
    deciders +=
        fmt::format("{}{} by {}", deciders.empty() ? "" : ", ", count, who);
  }
  fail_with_hint(
      ErrorCode::kBadRecipe,
      kept_by_default
          ? "mark it \"force\": true to decide what the family keeps, set "
            "\"defaults\": false to let the rules alone decide, or mark it "
            "\"optional\": true"
          : "remove the rule, move it before the one that takes its linears, "
            "or "
            "mark it \"optional\": true",
      "rules[{}]: found no linear that it decides: what it fits was decided "
      "before ({})",
      rule,
      deciders);
}

}  // namespace

bool reaches(const Pattern& pattern, const LinearModule& linear) {
  const std::string_view text = pattern.text();
  const bool named = !text.starts_with("re:") &&
                     model::last_part(text) == model::last_part(linear.module);
  return (named || linear.role != model::Role::kEmbedding) &&
         pattern.fits(linear.module);
}

RulePatterns::RulePatterns(const Recipe& recipe) : recipe_(recipe) {
  for (std::size_t rule = 0; rule < recipe.rules.size(); ++rule) {
    with_context(fmt::format("rules[{}].match", rule), [&] {
      auto& patterns = patterns_.emplace_back();
      for (const std::string& text : recipe.rules[rule].match) {
        patterns.emplace_back(text);
        if (patterns.back().is_exact()) {
          exact_[text].push_back(rule);
        } else {
          wild_.emplace_back(rule, patterns.size() - 1);
        }
      }
    });
  }
}

std::optional<std::size_t> RulePatterns::first_rule(const LinearModule& linear,
                                                    bool only_forced) const {
  std::optional<std::size_t> first;
  if (const auto exact = exact_.find(linear.module); exact != exact_.end()) {
    const auto& rules = exact->second;
    const auto counted =
        std::find_if(rules.begin(), rules.end(), [&](std::size_t rule) {
          return counts(rule, only_forced);
        });
    if (counted != rules.end()) {
      first = *counted;
    }
  }
  for (const auto& [rule, index] : wild_) {
    if (first && *first < rule) {
      break;
    }
    if (counts(rule, only_forced) && reaches(patterns_[rule][index], linear)) {
      return rule;
    }
  }
  return first;
}

bool RulePatterns::reaches_any(std::size_t rule,
                               const LinearModule& linear) const {
  return std::any_of(patterns_[rule].begin(),
                     patterns_[rule].end(),
                     [&](const auto& each) { return reaches(each, linear); });
}

void check_rules_live(const Recipe& recipe,
                      const RulePatterns& rules,
                      std::span<const LinearModule> linears,
                      std::span<const Decision> decisions) {
  std::unordered_set<std::string_view> names;
  for (const LinearModule& linear : linears) {
    names.insert(linear.module);
  }
  for (std::size_t rule = 0; rule < rules.size(); ++rule) {
    if (recipe.rules[rule].optional) {
      continue;
    }
    check_patterns(rule, rules.of(rule), names, linears);
    const bool live = std::any_of(
        decisions.begin(), decisions.end(), [rule](const Decision& decision) {
          return decision.rule == rule;
        });
    if (!live) {
      report_dead(rule, rules, linears, decisions);
    }
  }
}

}  // namespace nibble::quant
