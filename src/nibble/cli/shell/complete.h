#pragma once

#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nibble/base/function_ref.h"

namespace nibble::cli {

// What may stand where the cursor is.
struct Candidates {
  struct Word {
    std::string text;
    std::string description;  // may be empty
  };

  std::vector<Word> words;  // that begin with what is typed already
  bool files = false;       // names of files, too
  bool directories = false;
};

// Gives the names that the store knows; asked only where one may stand.
using StoreNames = FunctionRef<std::vector<std::string>()>;

// What may follow on a command line: words are those after the program's name,
// the last one being typed (perhaps empty). The commands and options are those
// of the parser, so that nothing has to be kept in step with it.
[[nodiscard]] Candidates complete(const CLI::App& app,
                                  std::span<const std::string> words,
                                  StoreNames store_names);

}  // namespace nibble::cli
