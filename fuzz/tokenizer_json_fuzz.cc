#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_entry.h"
#include "nibble/base/error.h"
#include "nibble/text/tokenizer/tokenizer.h"
#include "nibble/text/unicode/utf8.h"

namespace {

using nibble::text::Tokenizer;

// Words, numbers, spaces, line ends, a combining mark, a broken byte and the
// specials of the seeds.
constexpr std::string_view kText =
    "<s>It's  an e\xCC\x81xample, 12 \xE6\x97\xA5\xE6\x9C\xAC\n\n <t> a\xFF";

// What every accepted tokenizer promises: ids inside its vocabulary, text that
// is UTF-8, and the same text from the stream.
void check(const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> ids = tokenizer.encode(kText);
  for (const std::int32_t id : ids) {
    // The file's template may name ids that no token has.
    fuzz_require(id >= 0 && (id < tokenizer.vocabulary() ||
                             !tokenizer.id_to_token(id).has_value()));
  }
  const std::string text = tokenizer.decode(ids);
  fuzz_require(nibble::text::is_valid_utf8(text));
  nibble::text::TokenStream stream = tokenizer.stream();
  std::string streamed;
  for (const std::int32_t id : ids) {
    const std::string piece = stream.push(id);
    fuzz_require(nibble::text::is_valid_utf8(piece));
    streamed += piece;
  }
  streamed += stream.finish();
  fuzz_require(streamed == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    check(nibble::text::parse_tokenizer(json));
  } catch (const nibble::Error&) {
  }
  return 0;
}
