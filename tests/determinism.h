#pragma once

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mpirun.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "program.h"
#include "running_program.h"

namespace nibble {

// Everything that may differ between two runs and must not show.
struct Setting {
  std::string threads;
  std::string memory;
  std::string isa;
  std::string source;  // folder
  bool interrupted = false;
  int ranks = 1;

  [[nodiscard]] std::string text() const {
    return threads + " threads, " + memory + ", " + isa + ", " + source + ", " +
           (interrupted ? "interrupted, " : "") + std::to_string(ranks) +
           " processes";
  }
};

class Determinism : public testing::Test {
 protected:
  Determinism() {
    quant::write_tiny(scratch_.path() / "one",
                      {.family = "llama4", .scale = 8});
    quant::write_tiny(scratch_.path() / "many",
                      {.family = "llama4", .shards = 5, .scale = 8});
  }

  // Every order of settings, each of the others.
  static std::vector<Setting> settings() {
    std::vector<Setting> all;
    for (const char* isa : {"avx512", "avx2", "portable"}) {
      for (const char* memory : {"8MiB", "20MiB", "1GiB"}) {
        for (const char* threads : {"1", "2", "7"}) {
          for (const char* source : {"one", "many"}) {
            for (const bool interrupted : {false, true}) {
              all.push_back({threads, memory, isa, source, interrupted});
            }
          }
        }
      }
    }
    if (mpirun_missing().empty()) {
      for (const int ranks : {1, 3, 8}) {
        all.push_back({"1", "8MiB", "portable", "many", false, ranks});
        all.push_back({"2", "20MiB", "avx2", "one", true, ranks});
      }
    }
    return all;
  }

  // Runs every `step`-th setting, and all with several processes.
  void run_settings(std::size_t step) {
    std::map<std::string, std::string> expected;
    int runs = 0;
    int interrupted = 0;
    const std::vector<Setting> all = settings();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % step != 0 && all[i].ranks == 1) {
        continue;
      }
      SCOPED_TRACE(all[i].text());
      if (all[i].interrupted) {
        interrupted += interrupt(all[i]) ? 1 : 0;
      }
      const ProgramResult run = begin(all[i]).wait();
      ASSERT_EQ(run.status, 0) << run.error;
      std::map<std::string, std::string> contents =
          quant::contents_of(scratch_.path() / "out");
      if (expected.empty()) {
        expected = contents;
      }
      EXPECT_TRUE(contents == expected);
      std::filesystem::remove_all(scratch_.path() / "out");
      ++runs;
    }
    EXPECT_GT(interrupted, 0);
    std::printf("%d runs gave the same %zu files, %d of them interrupted\n",
                runs,
                expected.size(),
                interrupted);
  }

 private:
  RunningProgram begin(const Setting& setting) {
    const std::vector<std::string> arguments = {
        "quantize",
        scratch_.file(setting.source),
        "--recipe",
        // Every grain, with and without zero points; the range of a whole
        // tensor takes a pass of its own.
        R"({"version": 1, "defaults": false, "rules": [
            {"match": "*.experts.*", "scheme": "int4", "group": 32,
             "symmetric": false},
            {"match": "*.shared_expert.*", "scheme": "fp8", "group": "tensor"},
            {"match": "*.feed_forward.*_proj", "scheme": "int8",
             "group": "channel"},
            {"match": "*.self_attn.*", "scheme": "int4", "group": 64}]})",
        "--shard-size",
        "2MB",
        "--threads",
        setting.threads,
        "--memory",
        setting.memory,
        "-o",
        scratch_.file("out")};
    const std::vector<std::string> environment = {"NIBBLE_ISA=" + setting.isa};
    if (setting.ranks == 1) {
      return RunningProgram(NIBBLE_PROGRAM, arguments, environment);
    }
    return RunningProgram(
        "/usr/bin/env", mpirun_line(setting.ranks, arguments), environment);
  }

  // Kills a run once some parts are finished; false when it ended before.
  bool interrupt(const Setting& setting) {
    RunningProgram run = begin(setting);
    const std::filesystem::path journal =
        scratch_.path() / "out.partial" / "nibble.journal";
    const bool under_way = run.until([&] {
      std::error_code error;
      return std::filesystem::file_size(journal, error) > 1000 && !error;
    });
    run.signal(setting.ranks == 1 ? SIGKILL : SIGTERM);
    run.wait();
    if (std::filesystem::exists(scratch_.path() / "out")) {
      std::filesystem::remove_all(scratch_.path() / "out");
      return false;
    }
    return under_way;
  }

  ScratchDirectory scratch_;
};

}  // namespace nibble
