#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

// What a finished program left.
struct ProgramResult {
  int status = -1;  // exit status, or 128 + the signal that ended it
  std::string out;
  std::string error;
};

// Runs the built nibble with arguments in the source directory, input as its
// standard input and "NAME=value" entries added to the environment.
ProgramResult run_nibble(const std::vector<std::string>& arguments,
                         const std::string& input = "",
                         const std::vector<std::string>& environment = {});

// As run_nibble, any program by path.
ProgramResult run_program(const std::string& program,
                          const std::vector<std::string>& arguments,
                          const std::string& input = "",
                          const std::vector<std::string>& environment = {});

// A directory that is removed with the object.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

// Whole content of a file; fails the test when it cannot be read.
std::string content_of(const std::filesystem::path& path);
void write_content(const std::filesystem::path& path,
                   const std::string& content);

// A bundled model: "fable-moe".
std::string bundled(const std::string& name);

}  // namespace nibble
