#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::report {

// Text that is safe as the content of an element and inside of a quoted
// attribute: the five characters with a meaning there become references, and
// what is no printable UTF-8 becomes U+FFFD. Names of tensors come from files
// that anybody may have made, so everything goes through here.
[[nodiscard]] std::string escaped(std::string_view text);

using Attributes =
    std::initializer_list<std::pair<std::string_view, std::string>>;

// <name key="value">content</name>; values are escaped, content is markup
// already.
[[nodiscard]] std::string element(std::string_view name,
                                  Attributes attributes,
                                  std::string_view content);
// The same around text, which is escaped.
[[nodiscard]] std::string text_element(std::string_view name,
                                       Attributes attributes,
                                       std::string_view text);
// <name key="value"/> of SVG.
[[nodiscard]] std::string shape(std::string_view name, Attributes attributes);

// A table under headings; cells are text. Cells that are numbers stand to the
// right.
[[nodiscard]] std::string table(
    std::string_view caption,
    const std::vector<std::string>& headings,
    const std::vector<std::vector<std::string>>& rows);

// Markup behind a line of text that opens it.
[[nodiscard]] std::string folded(std::string_view summary,
                                 std::string_view content);

// A whole page that needs no other file and no network, in light and dark:
// body is markup.
[[nodiscard]] std::string page(std::string_view title, std::string_view body);

}  // namespace nibble::report
