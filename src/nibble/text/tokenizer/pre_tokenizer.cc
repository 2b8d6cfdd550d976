#include "nibble/text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "nibble/text/unicode/byte_level.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

using Behavior = PreTokenizer::Behavior;

struct Part {
  Range range;
  bool match;
};

// Matches and what lies between them, in order: together all of the text.
std::vector<Part> all_parts(const std::vector<Range>& matches,
                            std::size_t bytes,
                            bool invert) {
  std::vector<Part> parts;
  parts.reserve(matches.size() + 1);
  std::size_t from = 0;
  for (const Range& match : matches) {
    if (match.begin != from) {
      parts.push_back({{from, match.begin}, invert});
    }
    parts.push_back({match, !invert});
    from = match.end;
  }
  if (from != bytes) {
    parts.push_back({{from, bytes}, invert});
  }
  return parts;
}

// Joins a part to its predecessor where join(part, predecessor is a match).
template <typename Join>
void join_forward(std::vector<Part>& parts, Join join) {
  std::vector<Part> joined;
  bool previous = false;
  for (const Part& part : parts) {
    if (!joined.empty() && join(part, previous)) {
      joined.back().range.end = part.range.end;
    } else {
      joined.push_back(part);
    }
    previous = part.match;
  }
  parts = std::move(joined);
}

void join_with_next(std::vector<Part>& parts) {
  std::vector<Part> joined;  // last part first
  bool previous = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!joined.empty() && part->match && !previous) {
      joined.back().range.begin = part->range.begin;
    } else {
      joined.push_back(*part);
    }
    previous = part->match;
  }
  std::reverse(joined.begin(), joined.end());
  parts = std::move(joined);
}

// Appends the pieces that parts make, moved by offset.
void append_pieces(std::vector<Part> parts,
                   Behavior behavior,
                   std::size_t offset,
                   std::vector<Range>& out) {
  switch (behavior) {
    case Behavior::kIsolated:
      break;
    case Behavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.match; });
      break;
    case Behavior::kMergedWithPrevious:
      join_forward(parts, [](const Part& part, bool previous) {
        return part.match && !previous;
      });
      break;
    case Behavior::kMergedWithNext:
      join_with_next(parts);
      break;
    case Behavior::kContiguous:
      join_forward(parts, [](const Part& part, bool previous) {
        return part.match == previous;
      });
      break;
  }
  for (const Part& part : parts) {
    if (part.range.begin != part.range.end) {
      out.push_back({offset + part.range.begin, offset + part.range.end});
    }
  }
}

// Cuts every piece at what find(its text) returns.
template <typename Find>
Pieces cut(Pieces pieces, Behavior behavior, bool invert, Find find) {
  std::vector<Range> ranges;
  for (const Range& range : pieces.ranges) {
    const std::string_view text =
        std::string_view(pieces.text)
            .substr(range.begin, range.end - range.begin);
    append_pieces(all_parts(find(text), text.size(), invert),
                  behavior,
                  range.begin,
                  ranges);
  }
  pieces.ranges = std::move(ranges);
  return pieces;
}

// Rewrites every piece: write(text, is at the start of all, out).
template <typename Write>
Pieces rewrite(const Pieces& pieces, Write write) {
  Pieces out;
  out.text.reserve(pieces.text.size() + pieces.text.size() / 2);
  out.ranges.reserve(pieces.ranges.size());
  for (const Range& range : pieces.ranges) {
    const std::size_t begin = out.text.size();
    write(std::string_view(pieces.text)
              .substr(range.begin, range.end - range.begin),
          range.begin == 0,
          out.text);
    out.ranges.push_back({begin, out.text.size()});
  }
  return out;
}

Pieces apply(const PreTokenizer::Split& step, Pieces pieces, bool /*start*/) {
  return cut(
      std::move(pieces),
      step.behavior,
      step.invert,
      [&](std::string_view text) { return step.pattern.find_all(text); });
}

Pieces apply(const PreTokenizer::Digits& step, Pieces pieces, bool /*start*/) {
  const auto digits = [](std::string_view text) {
    std::vector<Range> found;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (is_numeric(next_code_point(text, at))) {
        found.push_back({begin, at});
      }
    }
    return found;
  };
  return cut(std::move(pieces),
             step.individual ? Behavior::kIsolated : Behavior::kContiguous,
             false,
             digits);
}

const Regex& gpt2_pattern() {
  static const Regex pattern(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
      R"(|\s+(?!\S)|\s+)");
  return pattern;
}

Pieces apply(const PreTokenizer::ByteLevel& step,
             Pieces pieces,
             bool /*start*/) {
  if (step.add_prefix_space) {
    pieces = rewrite(
        pieces, [](std::string_view text, bool /*first*/, std::string& out) {
          if (text.front() != ' ') {
            out += ' ';
          }
          out += text;
        });
  }
  if (step.use_regex) {
    pieces = cut(
        std::move(pieces),
        Behavior::kIsolated,
        false,
        [](std::string_view text) { return gpt2_pattern().find_all(text); });
  }
  return rewrite(pieces,
                 [](std::string_view text, bool /*first*/, std::string& out) {
                   append_byte_level(text, out);
                 });
}

Pieces apply(const PreTokenizer::Metaspace& step,
             const Pieces& pieces,
             bool starts_input) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  const auto write = [&](std::string_view text, bool first, std::string& out) {
    const bool marked =
        text.front() == ' ' || text.starts_with(step.replacement);
    if (!marked &&
        (step.prepend == Prepend::kAlways ||
         (step.prepend == Prepend::kFirst && first && starts_input))) {
      out += step.replacement;
    }
    for (const char c : text) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  };
  Pieces marked = rewrite(pieces, write);
  if (!step.split) {
    return marked;
  }
  const Pattern mark = Pattern::literal(step.replacement);
  return cut(std::move(marked),
             Behavior::kMergedWithNext,
             false,
             [&](std::string_view text) { return mark.find_all(text); });
}

}  // namespace

Pieces PreTokenizer::apply(std::string text, bool starts_input) const {
  Pieces pieces;
  if (!text.empty()) {
    pieces.ranges.push_back({0, text.size()});
  }
  pieces.text = std::move(text);
  for (const Step& step : steps_) {
    pieces = std::visit(
        [&](const auto& known) {
          return nibble::text::apply(known, std::move(pieces), starts_input);
        },
        step);
  }
  return pieces;
}

}  // namespace nibble::text
