// Continues a text with a dense model. Links loading, model and text alone:
// that this program builds proves that they know nothing of quantization.
//   nibble_dense models/fable-moe "Once upon a time" 40
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/load/load_model.h"
#include "nibble/text/generate.h"

namespace {

int run(const std::string& directory,
        std::string_view prompt,
        std::int64_t max_tokens) {
  const auto checkpoint = nibble::load::open_checkpoint(directory);
  const auto model =
      nibble::load::load_model(checkpoint, {}, nibble::backend::cpu_backend());
  const auto tokenizer = nibble::text::load_tokenizer(directory);
  std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  if (const auto bos = model->config().bos_token) {
    ids.insert(ids.begin(), *bos);
  }
  nibble::text::GenerateOptions options;
  options.max_tokens = max_tokens;
  const auto show = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  static_cast<void>(
      nibble::text::generate(*model, tokenizer, ids, options, show));
  std::puts("");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  std::int64_t max_tokens = 0;
  if (arguments.size() == 4) {
    const std::string& count = arguments[3];
    std::from_chars(count.data(), count.data() + count.size(), max_tokens);
  }
  if (max_tokens < 1) {
    std::fputs("usage: nibble_dense DIR PROMPT TOKENS\n", stderr);
    return 2;
  }
  try {
    return run(arguments[1], arguments[2], max_tokens);
  } catch (const nibble::Error& error) {
    std::fprintf(stderr, "nibble_dense: %s\n", error.what());
    return 1;
  }
}
