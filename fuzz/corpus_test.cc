#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fuzz_entry.h"
#include "nibble/base/files/file.h"

namespace nibble {
namespace {

std::vector<std::filesystem::path> corpus() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(NIBBLE_CORPUS)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void feed(const std::string& text) {
  EXPECT_EQ(
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()),
                             text.size()),
      0);
}

TEST(Corpus, EveryFileIsHandled) {
  ASSERT_FALSE(corpus().empty());
  for (const std::filesystem::path& file : corpus()) {
    SCOPED_TRACE(file.string());
    feed(read_text_file(file));
  }
}

TEST(Corpus, EveryCutOfASmallFileIsHandled) {
  for (const std::filesystem::path& file : corpus()) {
    SCOPED_TRACE(file.string());
    const std::string text = read_text_file(file);
    for (std::size_t bytes = 0; bytes < std::min<std::size_t>(text.size(), 500);
         ++bytes) {
      feed(text.substr(0, bytes));
    }
  }
}

TEST(Corpus, FilesWithChangedBytesAreHandled) {
  std::mt19937 random(1);
  for (const std::filesystem::path& file : corpus()) {
    SCOPED_TRACE(file.string());
    const std::string text = read_text_file(file);
    if (text.empty() || text.size() > 10'000) {
      continue;
    }
    for (int round = 0; round < 200; ++round) {
      std::string changed = text;
      for (int i = 0; i < 1 + round % 3; ++i) {
        changed[random() % changed.size()] = static_cast<char>(random());
      }
      feed(changed);
    }
  }
}

}  // namespace
}  // namespace nibble
