// Published templates against what transformers renders.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/text/chat/chat_template.h"
#include "reference_data.h"

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

enum class Outcome { kMatches, kRefused, kDiffers };

// How one recorded case comes out; why says what differs.
Outcome outcome_of(const ChatTemplate& chat_template,
                   const Json& item,
                   std::string& why) {
  try {
    const std::string text =
        chat_template.render(item.at("messages"),
                             item.at("add_generation_prompt").get<bool>(),
                             Json::object());
    if (item.contains("text") && item.at("text") == text) {
      return Outcome::kMatches;
    }
    why = "rendered: " + text;
    return Outcome::kDiffers;
  } catch (const Error& error) {
    why = error.what();
    if (error.code() == ErrorCode::kUnsupported) {
      return Outcome::kRefused;
    }
    return item.contains("error") ? Outcome::kMatches : Outcome::kDiffers;
  }
}

// Every published template is rendered exactly or refused by name: a
// conversation written a little wrong is worse than none.
TEST(PublishedTemplates, MatchExactlyOrAreRefused) {
  NIBBLE_REFERENCE_OR_SKIP(directory, "golden/chat-templates");
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".jinja") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 54U);
  int complete = 0;
  for (const auto& file : files) {
    const Json golden = Json::parse(
        read_text_file(std::filesystem::path(file).replace_extension(".json")));
    std::string refusal;
    try {
      const ChatTemplate chat_template(read_text_file(file),
                                       golden.at("special_tokens"));
      for (const Json& item : golden.at("cases")) {
        std::string why;
        const Outcome outcome = outcome_of(chat_template, item, why);
        EXPECT_NE(outcome, Outcome::kDiffers)
            << file.filename() << " " << item.dump() << "\n"
            << why;
        if (outcome == Outcome::kRefused) {
          refusal = why;
        }
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported)
          << file.filename() << ": " << error.what();
      refusal = error.what();
    }
    complete += refusal.empty() ? 1 : 0;
    std::printf("%-60s %s\n",
                file.filename().c_str(),
                refusal.empty() ? "all cases" : refusal.c_str());
  }
  RecordProperty("complete", complete);
  std::printf("%d of %zu templates pass every case\n", complete, files.size());
  EXPECT_GE(complete, 1);
}

}  // namespace
}  // namespace nibble::text
