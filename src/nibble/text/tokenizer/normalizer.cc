#include "nibble/text/tokenizer/normalizer.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "nibble/base/error.h"

namespace nibble::text {
namespace {

std::string apply(const Normalizer::Nfc& /*step*/, std::string text) {
  // Code points below U+0300 are unchanged by NFC and compose with nothing
  // among themselves; their lead bytes are below 0xCC.
  const bool inert = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0xCC;
  });
  if (inert) {
    return text;
  }
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()),
      &raw,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(
      raw, &std::free);
  NIBBLE_CHECK(bytes >= 0,
               kOverBudget,
               "NFC of {} bytes: {}",
               text.size(),
               utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(raw), static_cast<std::size_t>(bytes)};
}

std::string apply(const Normalizer::Prepend& step, std::string text) {
  return text.empty() ? text : step.text + text;
}

std::string apply(const Normalizer::Replace& step, const std::string& text) {
  return step.pattern.replace_all(text, step.content);
}

}  // namespace

std::string Normalizer::apply(std::string text) const {
  for (const Step& step : steps_) {
    text = std::visit(
        [&](const auto& known) {
          return nibble::text::apply(known, std::move(text));
        },
        step);
  }
  return text;
}

}  // namespace nibble::text
