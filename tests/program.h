#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "temporary_directory.h"

namespace nibble {

// What a finished program left.
struct ProgramResult {
  int status = -1;  // exit status, or 128 + the signal that ended it
  std::string out;
  std::string error;
  std::uint64_t peak_rss_bytes = 0;
};

// Runs the built nibble with arguments in the source directory, input as its
// standard input and "NAME=value" entries added to the environment.
ProgramResult run_nibble(const std::vector<std::string>& arguments,
                         const std::string& input = "",
                         const std::vector<std::string>& environment = {});

// The JSON document of a run with --json that must succeed; throws otherwise.
nlohmann::json run_nibble_json(std::vector<std::string> arguments,
                               const std::string& input = "");

// As run_nibble, any program by path.
ProgramResult run_program(const std::string& program,
                          const std::vector<std::string>& arguments,
                          const std::string& input = "",
                          const std::vector<std::string>& environment = {});

// A temporary directory that gives its files' paths as arguments.
class ScratchDirectory : public TemporaryDirectory {
 public:
  [[nodiscard]] std::string file(const std::string& name) const {
    return (path() / name).string();
  }
};

// Whole content of a file; throws when it cannot be read.
std::string content_of(const std::filesystem::path& path);
void write_content(const std::filesystem::path& path,
                   const std::string& content);

// A bundled model: "fable-moe".
std::string bundled(const std::string& name);

}  // namespace nibble
