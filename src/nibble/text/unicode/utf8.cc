#include "nibble/text/unicode/utf8.h"

#include <utf8proc.h>

namespace nibble::text {

Utf8Scan scan_utf8(std::string_view bytes) {
  using Kind = Utf8Scan::Kind;
  const auto at = [&](std::size_t i) {
    return static_cast<unsigned char>(bytes[i]);
  };
  const unsigned lead = at(0);
  if (lead < 0x80) {
    return {Kind::kComplete, 1};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {Kind::kInvalid, 1};
  }
  const std::size_t length = utf8_length(bytes[0]);
  // The second byte's range excludes overlong forms, surrogates and code
  // points above U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) {
      return {Kind::kTruncated, i};
    }
    if (at(i) < low || at(i) > high) {
      return {Kind::kInvalid, i};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::kComplete, length};
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Scan scan = scan_utf8(bytes);
    if (scan.kind != Utf8Scan::Kind::kComplete) {
      return false;
    }
    bytes.remove_prefix(scan.length);
  }
  return true;
}

std::string to_valid_utf8(std::string_view bytes) {
  if (is_valid_utf8(bytes)) {
    return std::string(bytes);
  }
  std::string out;
  Utf8Assembler assembler;
  assembler.push(bytes, out);
  assembler.finish(out);
  return out;
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::size_t length = utf8_length(text[at]);
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  char32_t code_point = 0;
  switch (length) {
    case 1:
      code_point = byte(0);
      break;
    case 2:
      code_point = (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
      break;
    case 3:
      code_point =
          (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
      break;
    default:
      code_point = (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 |
                   (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  at += length;
  return code_point;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_whitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t code_point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool is_word(char32_t code_point) {
  if (code_point == 0x200C || code_point == 0x200D) {
    return true;  // Join_Control
  }
  if ((code_point >= 0x24B6 && code_point <= 0x24E9) ||
      (code_point >= 0x1F130 && code_point <= 0x1F149) ||
      (code_point >= 0x1F150 && code_point <= 0x1F169) ||
      (code_point >= 0x1F170 && code_point <= 0x1F189)) {
    return true;  // Other_Alphabetic symbols: letters in circles and squares
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    held_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const Utf8Scan scan = scan_utf8(bytes);
    if (scan.kind == Utf8Scan::Kind::kTruncated) {
      held_ = bytes;
      return;
    }
    out += scan.kind == Utf8Scan::Kind::kComplete ? bytes.substr(0, scan.length)
                                                  : kReplacementCharacter;
    bytes.remove_prefix(scan.length);
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (!held_.empty()) {
    out += kReplacementCharacter;
    held_.clear();
  }
}

}  // namespace nibble::text
