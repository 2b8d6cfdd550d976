#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::cli {

// Rows of text under headings, for people.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);

  // As many cells as headings.
  void add(std::vector<std::string> cells);

  // Columns padded to their widest cell, two spaces between; cells that are
  // numbers stand to the right. Widths count code points.
  [[nodiscard]] std::string text() const;
  // The same as a Markdown table.
  [[nodiscard]] std::string markdown() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first: headings
};

}  // namespace nibble::cli
