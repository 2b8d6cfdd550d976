#include "nibble/base/progress.h"

#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "nibble/base/function_ref.h"
#include "nibble/base/log.h"

namespace nibble {
namespace {

class Recorder : public ProgressSink {
 public:
  void begin(std::string_view phase, std::uint64_t total_bytes) override {
    events.push_back(fmt::format("{} {}", phase, total_bytes));
  }

  void advance(std::uint64_t bytes) override {
    events.push_back(fmt::format("+{}", bytes));
  }

  void end() override { events.emplace_back("end"); }

  std::vector<std::string> events;
};

void work(ProgressSink& progress) {
  progress.begin("quantizing", 10);
  progress.advance(4);
  progress.advance(6);
  progress.end();
}

TEST(Progress, ASinkSeesEveryStep) {
  Recorder recorder;
  work(recorder);
  EXPECT_EQ(recorder.events,
            (std::vector<std::string>{"quantizing 10", "+4", "+6", "end"}));
}

TEST(Progress, TheNullSinkIgnoresEverything) {
  EXPECT_NO_THROW(work(null_progress()));
  EXPECT_EQ(&null_progress(), &null_progress());
}

TEST(Log, GoesToTheSinkWhileOneIsSet) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, std::string_view text) {
    lines.push_back(
        fmt::format("{} {}", level == LogLevel::kWarning ? "W" : "I", text));
  });
  log_info("{} of {}", 1, 2);
  log_warning("careful");
  set_log_sink(nullptr);
  log_info("into the void");
  EXPECT_EQ(lines, (std::vector<std::string>{"I 1 of 2", "W careful"}));
}

TEST(FunctionRef, CallsWhatItRefersTo) {
  int calls = 0;
  auto add = [&](int a, int b) {
    ++calls;
    return a + b;
  };
  const FunctionRef<int(int, int)> ref = add;
  EXPECT_EQ(ref(2, 3), 5);
  EXPECT_EQ(ref(4, 5), 9);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace nibble
