#include "nibble/quant/pipeline/plan/config_edit.h"

#include <cstddef>
#include <optional>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// A cursor over text that is known to be valid JSON.
struct Scanner {
  std::string_view text;
  std::size_t at = 0;

  void skip_space() {
    while (at < text.size() && is_space(text[at])) {
      ++at;
    }
  }

  // From an opening quote to the byte after the closing one.
  void skip_string() {
    ++at;
    while (text[at] != '"') {
      at += text[at] == '\\' ? 2 : 1;
    }
    ++at;
  }

  // Any value; brackets of all kinds are balanced in valid JSON, so one depth
  // is enough.
  void skip_value() {
    int depth = 0;
    do {
      const char c = text[at];
      if (c == '"') {
        skip_string();
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}' || is_space(c))) {
        return;  // end of a number, true, false or null
      }
      depth += c == '{' || c == '[' ? 1 : 0;
      depth -= c == '}' || c == ']' ? 1 : 0;
      ++at;
    } while (depth > 0 || (text[at - 1] != '}' && text[at - 1] != ']' &&
                           text[at - 1] != '"'));
  }
};

// Where the members of the top-level object stand.
struct Members {
  std::size_t open = 0;        // byte after '{'
  std::size_t first_key = 0;   // of the first member, 0 when there is none
  std::size_t last_value = 0;  // byte after the last value
  std::optional<std::pair<std::size_t, std::size_t>> value;  // of the key
  std::size_t start = 0;   // of the key itself
  std::size_t before = 0;  // byte after the value before it
  std::size_t next = 0;    // start of the key behind it, 0 when it is the last
};

Members find_members(std::string_view text, std::string_view key) {
  Members members;
  Scanner scanner{text};
  scanner.skip_space();
  members.open = ++scanner.at;
  members.last_value = scanner.at;
  scanner.skip_space();
  while (text[scanner.at] == '"') {
    const std::size_t start = scanner.at;
    if (members.first_key == 0) {
      members.first_key = start;
    }
    scanner.skip_string();
    const std::string name =
        nlohmann::json::parse(text.substr(start, scanner.at - start))
            .get<std::string>();
    scanner.skip_space();
    ++scanner.at;  // ':'
    scanner.skip_space();
    const std::size_t begin = scanner.at;
    scanner.skip_value();
    const bool found = name == key;
    if (found) {  // the last one counts, as it does for parsers
      members.value = {begin, scanner.at};
      members.start = start;
      members.before = members.last_value;
      members.next = 0;
    }
    members.last_value = scanner.at;
    scanner.skip_space();
    if (text[scanner.at] == ',') {
      ++scanner.at;
      scanner.skip_space();
      if (found) {
        members.next = scanner.at;
      }
    }
  }
  return members;
}

// value as text; lines after the first start with newline and indent.
std::string nested(const nlohmann::json& value,
                   std::string_view newline,
                   std::string_view indent) {
  if (newline.empty()) {
    return value.dump();
  }
  const char fill = !indent.empty() && indent.front() == '\t' ? '\t' : ' ';
  const int width = indent.empty() ? 2 : static_cast<int>(indent.size());
  std::string text;
  for (const char c : value.dump(width, fill)) {
    if (c == '\n') {
      text += newline;
      text += indent;
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string with_entry(std::string_view text,
                       std::string_view key,
                       const nlohmann::json& value) {
  const nlohmann::json parsed =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  NIBBLE_CHECK(parsed.is_object(),
               kCorruptData,
               "config.json: found text that is no JSON object, expected one");
  const Members members = find_members(text, key);

  // The white space before the first key shows the file's style.
  std::string_view lead;
  if (members.first_key != 0) {
    lead = text.substr(members.open, members.first_key - members.open);
  }
  const std::size_t line = lead.rfind('\n');
  std::string_view newline;
  std::string_view indent;
  if (line != std::string_view::npos) {
    newline = line > 0 && lead[line - 1] == '\r' ? "\r\n" : "\n";
    indent = lead.substr(line + 1);
  }
  const std::string entry = nested(value, newline, indent);

  std::string result(text);
  if (members.value) {
    const auto [begin, end] = *members.value;
    return result.replace(begin, end - begin, entry);
  }
  std::string added = members.first_key == 0 ? "" : ",";
  if (newline.empty()) {
    added += lead.empty() && members.first_key != 0 ? "" : " ";
    if (members.first_key == 0) {
      added.clear();
    }
  } else {
    added += newline;
    added += indent;
  }
  added += nlohmann::json(std::string(key)).dump();
  added += ": ";
  added += entry;
  return result.insert(members.last_value, added);
}

std::string without_entry(std::string_view text, std::string_view key) {
  const Members members = find_members(text, key);
  std::string result(text);
  if (!members.value) {
    return result;
  }
  const std::size_t begin = members.next != 0 ? members.start : members.before;
  const std::size_t end =
      members.next != 0 ? members.next : members.value->second;
  return result.erase(begin, end - begin);
}

}  // namespace nibble::quant
