#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace nibble::cli {

// Standard output, checked. Throws kIo when it cannot be written. Single
// thread.
void print(std::string_view text);
// One JSON document and a line end. Bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::json& document);
// Hands everything printed so far to the system; kIo when that fails.
void flush_output();

// Thrown by the functions above when the reader of a pipe has gone
// (nibble ... | head): the program ends with status 1 and says nothing.
struct ClosedPipe {};

// One line on standard error.
void print_error(std::string_view line);

// What the user typed last, without the line end; nothing at the end of
// standard input.
[[nodiscard]] bool read_line(std::string& line);
// The rest of standard input. kIo when it cannot be read.
[[nodiscard]] std::string read_input();

[[nodiscard]] bool input_is_terminal();
[[nodiscard]] bool output_is_terminal();
[[nodiscard]] bool error_is_terminal();

}  // namespace nibble::cli
