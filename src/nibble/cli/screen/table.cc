#include "nibble/cli/screen/table.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "nibble/base/error.h"

namespace nibble::cli {
namespace {

// Code points: every byte that does not continue one.
std::size_t width_of(std::string_view cell) {
  return static_cast<std::size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
      }));
}

bool is_number(std::string_view cell) {
  return !cell.empty() && std::isdigit(static_cast<unsigned char>(cell[0]));
}

}  // namespace

Table::Table(std::vector<std::string> headings) {
  rows_.push_back(std::move(headings));
}

void Table::add(std::vector<std::string> cells) {
  NIBBLE_CHECK(cells.size() == rows_.front().size(),
               kInternal,
               "table: found {} cells, expected {}",
               cells.size(),
               rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  const std::size_t columns = rows_.front().size();
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], width_of(rows_[r][c]));
      // A column of numbers; "-" stands for a number that does not exist.
      right[c] =
          right[c] && (r == 0 || is_number(rows_[r][c]) || rows_[r][c] == "-");
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string padding(widths[c] - width_of(row[c]), ' ');
      line += c == 0 ? "" : "  ";
      line += right[c] ? padding + row[c] : row[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string Table::markdown() const {
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (const std::string& cell : rows_[r]) {
      out += "| ";
      for (const char c : cell) {
        out += c == '|' ? "\\|" : std::string(1, c);
      }
      out += " ";
    }
    out += "|\n";
    if (r == 0) {
      for (std::size_t c = 0; c < rows_[r].size(); ++c) {
        out += "|---";
      }
      out += "|\n";
    }
  }
  return out;
}

}  // namespace nibble::cli
