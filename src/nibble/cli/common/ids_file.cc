#include "nibble/cli/common/ids_file.h"

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"

namespace nibble::cli {

std::vector<std::int32_t> ids_of(const nlohmann::json& array,
                                 const std::string& where,
                                 std::int64_t vocabulary) {
  if (!array.is_array()) {
    fail_with_hint(ErrorCode::kCorruptData,
                   "ids stand in one flat array: [1, 15, 2]",
                   "{}: found {}, expected an array of token ids",
                   where,
                   array.type_name());
  }
  std::vector<std::int32_t> ids;
  ids.reserve(array.size());
  for (const nlohmann::json& item : array) {
    const bool fits =
        item.is_number_unsigned() &&
        item.get<std::uint64_t>() < static_cast<std::uint64_t>(vocabulary);
    NIBBLE_CHECK(fits,
                 kCorruptData,
                 "{}: item {}: found {}, expected a token id from 0 to {}",
                 where,
                 ids.size(),
                 printable(item.dump()),
                 vocabulary - 1);
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

std::vector<std::int32_t> read_ids(const std::string& path,
                                   std::int64_t vocabulary) {
  return ids_of(parse_json(read_text_file(path), path), path, vocabulary);
}

}  // namespace nibble::cli
