// Keeps the generated parts of the documentation true: between
//   <!-- output of: nibble ARGUMENTS -->  and  <!-- end of output -->
// stands what the command prints, fenced or not.
// NIBBLE_UPDATE_DOCS=1 rewrites them.
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> result;
  for (std::string word; in >> word;) {
    result.push_back(word);
  }
  return result;
}

// The page with every generated part made anew; parts counts them.
std::string renewed(const std::string& page, int& parts) {
  const std::string begin = "<!-- output of: nibble ";
  const std::string end = "<!-- end of output -->";
  std::string result;
  std::size_t from = 0;
  for (std::size_t at = page.find(begin); at != std::string::npos;
       at = page.find(begin, from), ++parts) {
    const std::size_t body = page.find('\n', at) + 1;
    const std::size_t stop = page.find(end, body);
    const std::string command =
        page.substr(at + begin.size(), body - 5 - at - begin.size());
    EXPECT_NE(stop, std::string::npos) << command << ": no end mark";
    if (stop == std::string::npos) {
      break;
    }
    const ProgramResult run = run_nibble(words(command));
    EXPECT_EQ(run.status, 0) << command << "\n" << run.error;
    result += page.substr(from, body - from);
    // A fence around the output stays.
    const bool fenced = page.compare(body, 3, "```") == 0;
    const std::string fence =
        fenced ? page.substr(body, page.find('\n', body) + 1 - body) : "";
    result += fence + run.out + (fenced ? "```\n" : "");
    from = stop;
  }
  return result + page.substr(from);
}

TEST(Docs, GeneratedPartsAreCurrent) {
  const fs::path root(NIBBLE_SOURCE_DIR);
  std::vector<fs::path> pages = {root / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") {
      pages.push_back(entry.path());
    }
  }
  int parts = 0;
  for (const fs::path& page : pages) {
    const std::string now = content_of(page);
    const std::string expected = renewed(now, parts);
    if (std::getenv("NIBBLE_UPDATE_DOCS") != nullptr) {
      write_content(page, expected);
      continue;
    }
    EXPECT_EQ(now, expected)
        << page << " is out of date: NIBBLE_UPDATE_DOCS=1 rewrites it";
  }
  EXPECT_GE(parts, 10) << "the marks were not found";
}

TEST(Docs, LinksBetweenPagesLead) {
  static const std::regex kLink(R"(\]\(([^)#: ]+)(#[^)]*)?\))");
  const fs::path root(NIBBLE_SOURCE_DIR);
  std::vector<fs::path> pages = {
      root / "README.md", root / "ARCHITECTURE.md", root / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") {
      pages.push_back(entry.path());
    }
  }
  int links = 0;
  for (const fs::path& page : pages) {
    const std::string text = content_of(page);
    for (std::sregex_iterator it(text.begin(), text.end(), kLink), end;
         it != end;
         ++it, ++links) {
      EXPECT_TRUE(fs::exists(page.parent_path() / (*it)[1].str()))
          << page << " links to " << (*it)[1];
    }
  }
  EXPECT_GE(links, 5);
}

}  // namespace
}  // namespace nibble
