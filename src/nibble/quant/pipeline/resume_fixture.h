#pragma once

#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

#include "expect_error.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/pipeline/partial/journal.h"
#include "nibble/quant/pipeline/quantize.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "temporary_directory.h"

namespace nibble::quant {

// What the recipe of every run in these tests says.
inline const std::string kRecipe = one_rule(R"("scheme": "int4", "group": 32)");

// Counts steps of one kind, or of any when name is empty, and acts at one.
class StepCounter {
 public:
  StepCounter(std::string name, int at, std::function<void()> action)
      : name_(std::move(name)), at_(at), action_(std::move(action)) {}

  void operator()(std::string_view step) {
    if ((name_.empty() || step == name_) && count_.fetch_add(1) == at_) {
      action_();
    }
  }

  [[nodiscard]] int count() const { return count_.load(); }

 private:
  std::string name_;
  int at_;
  std::function<void()> action_;
  std::atomic<int> count_{0};
};

// A source, where its result belongs, and the bytes of an undisturbed run.
class Resume : public testing::Test {
 protected:
  Resume() {
    write_tiny(source_, {.family = "llama4"});
    options_.output = output_;
    options_.shard_bytes = 40'000;
    QuantizeOptions plain = options_;
    plain.output = temporary_.path() / "undisturbed";
    static_cast<void>(quantize_to(source_, kRecipe, plain));
    expected_ = contents_of(plain.output);
  }

  // Runs with counter as the hook.
  QuantizeReport run(StepCounter& counter) {
    QuantizeOptions options = options_;
    options.before_step = [&](std::string_view step) { counter(step); };
    return quantize_to(source_, kRecipe, options);
  }

  void expect_same_bytes() const {
    EXPECT_TRUE(contents_of(output_) == expected_);
    EXPECT_FALSE(std::filesystem::exists(partial_));
    EXPECT_FALSE(std::filesystem::exists(output_ / kJournalName));
  }

  // A run in another process that dies by SIGKILL at the step; false when it
  // came to its end before.
  bool killed_at(int step) {
    const pid_t child = ::fork();
    if (child == 0) {
      set_thread_count(1);  // threads of the parent are not in the child
      StepCounter counter("", step, [] { std::raise(SIGKILL); });
      try {
        static_cast<void>(run(counter));
      } catch (...) {
        ::_exit(3);
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return false;
    }
    return WTERMSIG(status) == SIGKILL;
  }

  TemporaryDirectory temporary_;
  const std::filesystem::path source_ = temporary_.path() / "in";
  const std::filesystem::path output_ = temporary_.path() / "out";
  const std::filesystem::path partial_ = temporary_.path() / "out.partial";
  QuantizeOptions options_;
  std::map<std::string, std::string> expected_;
};

}  // namespace nibble::quant
