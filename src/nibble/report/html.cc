#include "nibble/report/html.h"

#include <algorithm>
#include <cctype>

#include "nibble/report/style.h"

namespace nibble::report {
namespace {

std::string attributes_text(Attributes attributes) {
  std::string text;
  for (const auto& [key, value] : attributes) {
    text += " ";
    text += key;
    text += "=\"" + escaped(value) + "\"";
  }
  return text;
}

// Length of the well-formed UTF-8 sequence that text begins with, or 0.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first < 0xE0) {
    return follows(1) ? 2 : 0;
  }
  if (first >= 0xE0 && first < 0xF0) {
    // Neither overlong forms nor surrogates.
    const bool second = first == 0xE0   ? byte(1) >= 0xA0
                        : first == 0xED ? byte(1) < 0xA0
                                        : true;
    return second && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool second = first == 0xF0   ? byte(1) >= 0x90
                        : first == 0xF4 ? byte(1) < 0x90
                                        : true;
    return second && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// "12.5 MiB", "-", "3.1e-05": what columns of figures hold.
bool is_figure(std::string_view cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) ||
                           cell == "-" || cell == "not known");
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const char c = text.front();
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    if (length == 0 || (control && c != '\n')) {
      result += "\xEF\xBF\xBD";  // U+FFFD
    } else if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else if (c == '\'') {
      result += "&#39;";
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string element(std::string_view name,
                    Attributes attributes,
                    std::string_view content) {
  std::string text = "<";
  text += name;
  text += attributes_text(attributes);
  text += ">";
  text += content;
  text += "</";
  text += name;
  text += ">";
  return text;
}

std::string text_element(std::string_view name,
                         Attributes attributes,
                         std::string_view text) {
  return element(name, attributes, escaped(text));
}

std::string shape(std::string_view name, Attributes attributes) {
  std::string text = "<";
  text += name;
  text += attributes_text(attributes);
  text += "/>";
  return text;
}

std::string table(std::string_view caption,
                  const std::vector<std::string>& headings,
                  const std::vector<std::vector<std::string>>& rows) {
  std::vector<bool> figures(headings.size(), !rows.empty());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      figures[i] = figures[i] && is_figure(row[i]);
    }
  }
  const auto cell_class = [&](std::size_t i) {
    return std::string(figures[i] ? "figure" : "name");
  };
  std::string head;
  for (std::size_t i = 0; i < headings.size(); ++i) {
    head += text_element(
        "th", {{"scope", "col"}, {"class", cell_class(i)}}, headings[i]);
  }
  // Names may go to a new line behind a dot.
  const auto cell = [](const std::string& text) {
    std::string markup;
    for (const char c : escaped(text)) {
      markup += c;
      markup += c == '.' ? "<wbr>" : "";
    }
    return markup;
  };
  std::string body;
  for (const auto& row : rows) {
    std::string cells;
    for (std::size_t i = 0; i < row.size(); ++i) {
      cells += element("td",
                       {{"class", cell_class(i)}},
                       figures[i] ? escaped(row[i]) : cell(row[i]));
    }
    body += element("tr", {}, cells) + "\n";
  }
  const std::string inner =
      (caption.empty() ? "" : text_element("caption", {}, caption)) +
      element("thead", {}, element("tr", {}, head)) +
      element("tbody", {}, body);
  // Wide tables scroll by themselves, not the page.
  return element("div",
                 {{"class", "wide"}, {"tabindex", "0"}},
                 element("table", {}, inner)) +
         "\n";
}

std::string folded(std::string_view summary, std::string_view content) {
  return element("details",
                 {},
                 text_element("summary", {}, summary) + std::string(content)) +
         "\n";
}

std::string page(std::string_view title, std::string_view body) {
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n"
         "<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\">\n"
         // Nothing is fetched and nothing runs, whatever the text holds.
         "<meta http-equiv=\"Content-Security-Policy\" "
         "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n" +
         text_element("title", {}, title) + "\n" +
         element("style", {}, kStyle) + "\n</head>\n<body>\n" +
         element("main", {}, body) + "\n</body>\n</html>\n";
}

}  // namespace nibble::report
