#include "nibble/text/tokenizer/decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "nibble/base/error.h"
#include "nibble/base/function_ref.h"
#include "nibble/text/unicode/byte_level.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text {

using Next = FunctionRef<void(std::string)>;

class DecodeStream::Stage {
 public:
  Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  virtual ~Stage() = default;

  // Hands on what token gives.
  virtual void push(std::string token, Next next) = 0;

  virtual void finish(Next /*next*/) {}
};

namespace {

using Stage = DecodeStream::Stage;

class ByteLevelStage final : public Stage {
 public:
  void push(std::string token, Next next) override {
    // Added tokens may hold characters outside the alphabet: taken as UTF-8.
    const std::optional<std::string> bytes = from_byte_level(token);
    std::string out;
    assembler_.push(bytes ? *bytes : token, out);
    next(std::move(out));
  }

  void finish(Next next) override {
    std::string out;
    assembler_.finish(out);
    next(std::move(out));
  }

 private:
  Utf8Assembler assembler_;
};

// The byte of a token "<0xXX>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') {
    return std::nullopt;
  }
  unsigned value = 0;
  const char* end = token.data() + 5;
  const auto parsed = std::from_chars(token.data() + 3, end, value, 16);
  if (parsed.ec != std::errc{} || parsed.ptr != end) {
    return std::nullopt;
  }
  return static_cast<char>(value);
}

class ByteFallbackStage final : public Stage {
 public:
  void push(std::string token, Next next) override {
    if (const auto byte = fallback_byte(token)) {
      run_ += *byte;  // whether it is valid shows at the end of the run
      return;
    }
    flush(next);
    next(std::move(token));
  }

  void finish(Next next) override { flush(next); }

 private:
  void flush(Next next) {
    if (run_.empty()) {
      return;
    }
    if (is_valid_utf8(run_)) {
      next(std::move(run_));
    } else {
      for (std::size_t i = 0; i < run_.size(); ++i) {
        next(std::string(kReplacementCharacter));
      }
    }
    run_.clear();
  }

  std::string run_;
};

class ReplaceStage final : public Stage {
 public:
  explicit ReplaceStage(const Decoder::Replace& step) : step_(step) {}

  void push(std::string token, Next next) override {
    next(step_.pattern.replace_all(token, step_.content));
  }

 private:
  const Decoder::Replace& step_;
};

// How many times content starts (from_back: ends) text, at most limit.
std::size_t repeats(std::string_view text,
                    std::string_view content,
                    std::size_t limit,
                    bool from_back) {
  std::size_t count = 0;
  while (count < limit &&
         (from_back ? text.ends_with(content) : text.starts_with(content))) {
    if (from_back) {
      text.remove_suffix(content.size());
    } else {
      text.remove_prefix(content.size());
    }
    ++count;
  }
  return count;
}

class StripStage final : public Stage {
 public:
  explicit StripStage(const Decoder::Strip& step) : step_(step) {}

  void push(std::string token, Next next) override {
    const std::size_t unit = step_.content.size();
    const std::size_t front = repeats(token, step_.content, step_.start, false);
    token.erase(0, front * unit);
    const std::size_t back = repeats(token, step_.content, step_.stop, true);
    token.resize(token.size() - back * unit);
    next(std::move(token));
  }

 private:
  const Decoder::Strip& step_;
};

// Strip of one token that arrives in portions.
class FusedStripStage final : public Stage {
 public:
  FusedStripStage(const Decoder::Strip& step, bool continues)
      : step_(step), front_left_(continues ? 0 : step.start) {}

  void push(std::string token, Next next) override {
    const std::size_t unit = step_.content.size();
    const std::size_t front = repeats(token, step_.content, front_left_, false);
    token.erase(0, front * unit);
    front_left_ = token.empty() ? front_left_ - front : 0;
    // What may be the end is held back until more comes.
    held_ += token;
    const std::size_t back = repeats(held_, step_.content, step_.stop, true);
    std::string ready = held_.substr(0, held_.size() - back * unit);
    held_.erase(0, ready.size());
    next(std::move(ready));
  }

 private:
  const Decoder::Strip& step_;
  std::size_t front_left_;  // characters that may still be stripped in front
  std::string held_;
};

class MetaspaceStage final : public Stage {
 public:
  MetaspaceStage(const Decoder::Metaspace& step, bool continues)
      : step_(step), first_(!continues) {}

  void push(std::string token, Next next) override {
    const bool drop = first_ && step_.drop_first;
    first_ = false;
    const Pattern mark = Pattern::literal(step_.replacement);
    next(mark.replace_all(token, drop ? "" : " "));
  }

 private:
  const Decoder::Metaspace& step_;
  bool first_;
};

class JoinStage final : public Stage {
 public:
  explicit JoinStage(bool continues) : first_(!continues) {}

  void push(std::string token, Next next) override {
    next(first_ ? std::move(token) : " " + token);
    first_ = false;
  }

 private:
  bool first_;
};

bool fuses(const Decoder::Step& step) {
  return std::holds_alternative<Decoder::Fuse>(step) ||
         std::holds_alternative<Decoder::ByteLevel>(step);
}

// Makes the stage of each kind of step; Fuse needs none.
struct MakeStage {
  bool fused;
  bool continues;

  std::unique_ptr<Stage> operator()(const Decoder::ByteLevel&) const {
    return std::make_unique<ByteLevelStage>();
  }

  std::unique_ptr<Stage> operator()(const Decoder::ByteFallback&) const {
    return std::make_unique<ByteFallbackStage>();
  }

  std::unique_ptr<Stage> operator()(const Decoder::Fuse&) const {
    return nullptr;
  }

  std::unique_ptr<Stage> operator()(const Decoder::Replace& step) const {
    return std::make_unique<ReplaceStage>(step);
  }

  std::unique_ptr<Stage> operator()(const Decoder::Strip& step) const {
    if (fused) {
      return std::make_unique<FusedStripStage>(step, continues);
    }
    return std::make_unique<StripStage>(step);
  }

  std::unique_ptr<Stage> operator()(const Decoder::Metaspace& step) const {
    return std::make_unique<MetaspaceStage>(step, continues);
  }
};

}  // namespace

Decoder::Decoder(std::vector<Step> steps) : steps_(std::move(steps)) {
  bool fused = false;
  for (const Step& step : *steps_) {
    NIBBLE_CHECK(!fused || std::holds_alternative<Strip>(step) ||
                     std::holds_alternative<Fuse>(step),
                 kUnsupported,
                 "decoder: found another step behind Fuse or ByteLevel, "
                 "expected only Strip there");
    fused = fused || fuses(step);
  }
}

DecodeStream::DecodeStream(const Decoder& decoder, bool continues) {
  if (decoder.joins_with_spaces()) {
    stages_.push_back(std::make_unique<JoinStage>(continues));
    return;
  }
  bool fused = false;
  for (const Decoder::Step& step : decoder.steps()) {
    if (auto stage = std::visit(MakeStage{fused, continues}, step)) {
      stages_.push_back(std::move(stage));
    }
    fused = fused || fuses(step);
  }
}

DecodeStream::DecodeStream(DecodeStream&&) noexcept = default;
DecodeStream& DecodeStream::operator=(DecodeStream&&) noexcept = default;
DecodeStream::~DecodeStream() = default;

void DecodeStream::feed(std::size_t stage,
                        std::string token,
                        std::string& out) {
  if (stage == stages_.size()) {
    out += token;
    return;
  }
  const auto next = [&](std::string piece) {
    feed(stage + 1, std::move(piece), out);
  };
  stages_[stage]->push(std::move(token), next);
}

std::string DecodeStream::push(std::string token) {
  std::string out;
  feed(0, std::move(token), out);
  return out;
}

std::string DecodeStream::finish() {
  std::string out;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    const auto next = [&](std::string piece) {
      feed(stage + 1, std::move(piece), out);
    };
    stages_[stage]->finish(next);
  }
  return out;
}

}  // namespace nibble::text
