#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "fuzz_entry.h"
#include "nibble/base/error.h"
#include "nibble/text/chat/chat_template.h"
#include "nibble/text/unicode/utf8.h"

// A template is a stranger's program: whatever it says, it ends, and prints
// UTF-8 or is refused.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const nibble::text::ChatTemplate chat(
        source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const std::string text = chat.render(
        {{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Ho"}}, true);
    fuzz_require(nibble::text::is_valid_utf8(text));
  } catch (const nibble::Error&) {
  }
  return 0;
}
