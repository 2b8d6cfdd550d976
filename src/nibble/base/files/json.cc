#include "nibble/base/files/json.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"

namespace nibble {
namespace {

// "line 3, column 7" of a byte of text.
std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column =
      newline == std::string_view::npos ? byte : byte - newline - 1;
  return fmt::format("line {}, column {}", line, column + 1);
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  // The parser below would skip a mark, and stop without complaint at a NUL.
  NIBBLE_CHECK(!text.starts_with("\xEF\xBB\xBF"),
               kCorruptData,
               "{}: found a byte order mark, expected JSON without one",
               where);
  const std::size_t nul = text.find('\0');
  NIBBLE_CHECK(nul == std::string_view::npos,
               kCorruptData,
               "{}: {}: found a NUL byte, expected JSON",
               where,
               position(text, nul));
  const auto limit_depth = [&](int depth,
                               nlohmann::json::parse_event_t /*event*/,
                               nlohmann::json& /*value*/) {
    NIBBLE_CHECK(depth <= kMaxJsonDepth,
                 kCorruptData,
                 "{}: found JSON nested deeper than {} levels",
                 where,
                 kMaxJsonDepth);
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), limit_depth);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t byte = error.byte == 0 ? 0 : error.byte - 1;
    const std::size_t at = std::min(byte, text.size());
    const std::size_t start = at - std::min<std::size_t>(at, 20);
    fail(ErrorCode::kCorruptData,
         "{}: {}: found no valid JSON after '{}'",
         where,
         position(text, at),
         printable(text.substr(start, at - start)));
  } catch (const nlohmann::json::exception& error) {
    // A number beyond the range of a double.
    fail(ErrorCode::kCorruptData,
         "{}: found JSON that cannot be represented: {}",
         where,
         printable(error.what()));
  }
}

nlohmann::json read_json_object(const std::filesystem::path& path,
                                std::uint64_t limit_bytes) {
  nlohmann::json value =
      parse_json(read_text_file(path, limit_bytes), path.string());
  NIBBLE_CHECK(value.is_object(),
               kCorruptData,
               "{}: found a JSON {}, expected an object",
               path.string(),
               value.type_name());
  return value;
}

}  // namespace nibble
