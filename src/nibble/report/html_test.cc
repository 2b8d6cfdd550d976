#include "nibble/report/html.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Escaped, TheFiveCharactersWithAMeaning) {
  EXPECT_EQ(escaped("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(escaped("model.layers.0.mlp"), "model.layers.0.mlp");
}

TEST(Escaped, KeepsUtf8AndReplacesWhatIsNone) {
  EXPECT_EQ(escaped("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  const std::string lost = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped("a\xFF"
                    "b"),
            "a" + lost + "b");
  EXPECT_EQ(escaped("\xE2\x82"), lost + lost);             // cut short
  EXPECT_EQ(escaped("\xC0\xAF"), lost + lost);             // overlong
  EXPECT_EQ(escaped("\xED\xA0\x80"), lost + lost + lost);  // a surrogate
  EXPECT_EQ(escaped("\xF5\x80\x80\x80"), lost + lost + lost + lost);
  EXPECT_EQ(escaped(std::string("\0\x1B\x7F", 3)), lost + lost + lost);
  EXPECT_EQ(escaped("two\nlines"), "two\nlines");
}

TEST(Element, AttributesAndTextAreEscapedContentIsMarkup) {
  EXPECT_EQ(element("p", {{"title", "\"><script>"}}, "<b>x</b>"),
            "<p title=\"&quot;&gt;&lt;script&gt;\"><b>x</b></p>");
  EXPECT_EQ(text_element("p", {}, "<b>x</b>"), "<p>&lt;b&gt;x&lt;/b&gt;</p>");
  EXPECT_EQ(shape("line", {{"x1", "1.0"}}), "<line x1=\"1.0\"/>");
}

TEST(Table, FiguresStandRightAndNamesLeft) {
  const std::string text =
      table("all", {"name", "size"}, {{"<i>", "12 MiB"}, {"a.b", "3 KiB"}});
  EXPECT_THAT(text, HasSubstr("<caption>all</caption>"));
  EXPECT_THAT(text, HasSubstr("<td class=\"name\">&lt;i&gt;</td>"));
  EXPECT_THAT(text, HasSubstr("<td class=\"name\">a.<wbr>b</td>"));
  EXPECT_THAT(text, HasSubstr("<td class=\"figure\">12 MiB</td>"));
  EXPECT_THAT(text, HasSubstr("<th scope=\"col\" class=\"figure\">size</th>"));
}

TEST(Page, NeedsNothingElseAndRunsNothing) {
  const std::string text = page("a & b", element("p", {}, "x"));
  EXPECT_THAT(text, HasSubstr("<title>a &amp; b</title>"));
  EXPECT_THAT(text, HasSubstr("default-src 'none'"));
  EXPECT_THAT(text, HasSubstr("prefers-color-scheme: dark"));
  for (const char* outside :
       {"<script", "http://", "https://", "src=", "url("}) {
    EXPECT_THAT(text, Not(HasSubstr(outside))) << outside;
  }
}

}  // namespace
}  // namespace nibble::report
