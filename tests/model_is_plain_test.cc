// The code that computes a model and writes text knows nothing of how weights
// are stored: no word of that trade may occur in model/ or text/.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

// The first forbidden word in a line of source, or "".
std::string forbidden_word(std::string line) {
  static const std::vector<std::string> kWords = {
      "quantiz", "quantis", "gptq", "awq", "int4", "fp8", "zero_point"};
  std::transform(line.begin(), line.end(), line.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const std::string& word : kWords) {
    if (line.find(word) != std::string::npos) {
      return word;
    }
  }
  return "";
}

TEST(ModelIsPlain, NoWordOfQuantizationInModelOrText) {
  int lines = 0;
  for (const char* folder : {"model", "text"}) {
    const fs::path root = fs::path(NIBBLE_SOURCE_DIR) / "src/nibble" / folder;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      std::ifstream in(entry.path());
      int number = 0;
      for (std::string line; std::getline(in, line); ++lines) {
        ++number;
        EXPECT_EQ(forbidden_word(line), "")
            << entry.path() << ":" << number << ": " << line;
      }
    }
  }
  EXPECT_GT(lines, 300) << "the sources were not found";
}

TEST(ModelIsPlain, TheSearchFindsWhatItIsFor) {
  EXPECT_EQ(forbidden_word("  Dequantize(x);"), "quantiz");
  EXPECT_EQ(forbidden_word("kInt4Group"), "int4");
  EXPECT_EQ(forbidden_word("std::int64_t zero; // 4 points"), "");
}

}  // namespace
