#include "nibble/cli/screen/table.h"

#include <gtest/gtest.h>

#include "nibble/base/error.h"

namespace nibble::cli {
namespace {

TEST(Table, PadsColumnsAndPutsNumbersToTheRight) {
  Table table({"name", "size"});
  table.add({"a", "9.5"});
  table.add({"longer", "100.25"});
  table.add({"none", "-"});
  EXPECT_EQ(table.text(),
            "name      size\n"
            "a          9.5\n"
            "longer  100.25\n"
            "none         -\n");
}

TEST(Table, CountsCodePointsNotBytes) {
  Table table({"a", "b"});
  table.add({"\xC3\xA9\xC3\xA9", "x"});
  EXPECT_EQ(table.text(), "a   b\n\xC3\xA9\xC3\xA9  x\n");
}

TEST(Table, WritesMarkdownAndEscapesBars) {
  Table table({"a", "b"});
  table.add({"x|y", "1"});
  EXPECT_EQ(table.markdown(), "| a | b |\n|---|---|\n| x\\|y | 1 |\n");
}

TEST(Table, RefusesAShortRow) {
  Table table({"a", "b"});
  EXPECT_THROW(table.add({"x"}), Error);
}

}  // namespace
}  // namespace nibble::cli
