#include "nibble/store/hub/client.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/base/log.h"
#include "nibble/store/hub/http.h"

namespace nibble::store::hub {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr int kMaxAttempts = 5;
constexpr seconds kMaxWait{300};
constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() &&
                 !text.empty()
             ? std::optional(value)
             : std::nullopt;
}

bool may_pass(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

// Counts attempts without progress, and waits between them.
class Patience {
 public:
  Patience(const HubOptions& options, std::string what)
      : options_(options), what_(std::move(what)) {}

  void progressed() { failures_ = 0; }

  // After a failure that may pass: returns after waiting, or throws why it is
  // given up.
  void wait_after(const Outcome& outcome) {
    const std::string why =
        !outcome.broken.empty()
            ? outcome.broken
            : fmt::format("HTTP status {}", outcome.head.status);
    if (++failures_ >= kMaxAttempts) {
      fail_with_hint(ErrorCode::kIo,
                     "the same command goes on from here later",
                     "{}: found {} after {} attempts",
                     what_,
                     printable(why),
                     failures_);
    }
    const auto asked = number_in(outcome.head.header("retry-after"));
    const seconds wait =
        asked ? seconds(std::min<std::uint64_t>(*asked, kMaxWait.count()))
              : seconds(1 << (failures_ - 1));
    log_info(
        "{}: {}; trying again in {} s", what_, printable(why), wait.count());
    options_.sleep(wait);
    NIBBLE_CHECK(!options_.stopped(), kInterrupted, "interrupted");
  }

 private:
  const HubOptions& options_;
  const std::string what_;
  int failures_ = 0;
};

// Throws what an answer that will not pass means; id as the user typed it.
[[noreturn]] void refuse(const Head& head,
                         const std::string& what,
                         const std::string& id,
                         bool has_token) {
  const std::string code = head.header("x-error-code");
  const std::string said = head.header("x-error-message");
  const std::string detail =
      said.empty() ? "" : fmt::format(" ({})", printable(said));
  if (code == "GatedRepo" || head.status == 403) {
    fail_with_hint(
        ErrorCode::kNotFound,
        fmt::format("accept the model's conditions on its page, and set "
                    "HF_TOKEN to a token of the account that did{}",
                    has_token ? ", with the right to read it" : ""),
        "{}: found a model that is not open to everyone: HTTP status {}{}",
        what,
        head.status,
        detail);
  }
  if (head.status == 401) {
    fail_with_hint(ErrorCode::kNotFound,
                   has_token ? "look at HF_TOKEN: the hub does not take it"
                             : "if the name is right, the model is private: "
                               "set HF_TOKEN to a token that may read it",
                   "{}: found no such model for this user: HTTP status 401{}",
                   what,
                   detail);
  }
  if (head.status == 404) {
    fail_with_hint(ErrorCode::kNotFound,
                   code == "RevisionNotFound" ? "look at --revision"
                   : code == "EntryNotFound"
                       ? "the model changed; run the command again"
                       : "look at the spelling of " + id,
                   "{}: found no such {}: HTTP status 404{}",
                   what,
                   code == "RevisionNotFound" ? "revision"
                   : code == "EntryNotFound"  ? "file"
                                              : "model",
                   detail);
  }
  fail_with_hint(ErrorCode::kIo,
                 "look at HF_ENDPOINT",
                 "{}: found HTTP status {}{}, expected 200",
                 what,
                 head.status,
                 detail);
}

// First byte and whole length of "bytes 100-999/1000".
struct ContentRange {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> total;
};

std::optional<ContentRange> content_range(const std::string& text) {
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == std::string::npos ||
      slash == std::string::npos || slash < dash) {
    return std::nullopt;
  }
  const auto first = number_in(std::string_view(text).substr(6, dash - 6));
  if (!first) {
    return std::nullopt;
  }
  return ContentRange{*first,
                      number_in(std::string_view(text).substr(slash + 1))};
}

// The part of a file that is on disk.
class Part {
 public:
  Part(const fs::path& path, const std::function<void(std::uint64_t)>& advance)
      : file_(fs::exists(path) ? File::open_write(path) : File::create(path)),
        size_(file_.size_bytes()),
        advance_(advance) {
    note_progress();
  }

  [[nodiscard]] std::uint64_t size() const { return size_; }

  void restart() {
    file_.reserve(0);
    size_ = 0;
  }

  void append(std::string_view data) {
    file_.write(size_, std::as_bytes(std::span(data)));
    size_ += data.size();
    note_progress();
  }

  void sync() const { file_.sync(); }

 private:
  // What is loaded a second time was counted already.
  void note_progress() {
    if (size_ > counted_) {
      advance_(size_ - counted_);
      counted_ = size_;
    }
  }

  File file_;
  std::uint64_t size_ = 0;
  std::uint64_t counted_ = 0;
  const std::function<void(std::uint64_t)>& advance_;
};

}  // namespace

Client::Client(HubOptions options) : options_(std::move(options)) {
  std::string& endpoint = options_.endpoint;
  while (endpoint.ends_with('/')) {
    endpoint.pop_back();
  }
  if (!endpoint.starts_with("https://") && !endpoint.starts_with("http://")) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "for instance https://huggingface.co",
                   "HF_ENDPOINT: found {}, expected a URL that begins with "
                   "https:// or http://",
                   printable(endpoint));
  }
  if (!options_.stopped) {
    options_.stopped = [] { return false; };
  }
  if (!options_.sleep) {
    options_.sleep = [stopped = options_.stopped](seconds wait) {
      constexpr std::chrono::milliseconds kSlice{100};
      for (auto left = std::chrono::milliseconds(wait);
           left > left.zero() && !stopped();
           left -= kSlice) {
        std::this_thread::sleep_for(kSlice);
      }
    };
  }
  NIBBLE_CHECK(options_.token.find_first_of("\r\n") == std::string::npos,
               kInvalidArgument,
               "HF_TOKEN: found a line end, expected a token");
}

RemoteModel Client::model(const std::string& id,
                          const std::string& revision) const {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true",
                                      options_.endpoint,
                                      url_encode(id, "/"),
                                      url_encode(revision));
  const std::string what = fmt::format("{} at {}", id, options_.endpoint);
  Patience patience(options_, what);
  for (;;) {
    std::string body;
    const Outcome outcome =
        get({.url = url,
             .token = options_.token,
             .begin = [&](const Head&) { body.clear(); },
             .data =
                 [&](std::string_view data) {
                   NIBBLE_CHECK(body.size() + data.size() <= kMaxAnswerBytes,
                                kCorruptData,
                                "{}: found an answer of more than {} bytes",
                                what,
                                kMaxAnswerBytes);
                   body += data;
                 },
             .stopped = options_.stopped});
    if (!outcome.broken.empty() || may_pass(outcome.head.status)) {
      patience.wait_after(outcome);
      continue;
    }
    if (outcome.head.status != 200) {
      refuse(outcome.head, what, id, !options_.token.empty());
    }
    return parse_model(parse_json(body, what), what);
  }
}

ContentDigest Client::download(
    const std::string& id,
    const std::string& commit,
    const RemoteFile& file,
    const fs::path& path,
    const std::function<void(std::uint64_t)>& advance) const {
  const std::string url = fmt::format("{}/{}/resolve/{}/{}",
                                      options_.endpoint,
                                      url_encode(id, "/"),
                                      commit,
                                      url_encode(file.path, "/"));
  const std::string what = fmt::format("{}/{}", id, printable(file.path));
  std::optional<std::uint64_t> length = file.bytes;
  ContentDigest expected = file.digest;
  Part part(path, advance);
  if (length && part.size() > *length) {
    part.restart();
  }
  Patience patience(options_, what);
  bool complete = length && part.size() == *length;
  while (!complete) {
    const std::uint64_t from = part.size();
    const auto begin = [&](const Head& head) {
      const auto range = content_range(head.header("content-range"));
      if (head.status != 206 || !range || range->first != from) {
        part.restart();  // the whole file comes
      }
      if (!length) {
        length = head.status == 206 && range
                     ? range->total
                     : number_in(head.header("content-length"));
      }
      const std::string linked = head.header("x-linked-etag");
      if (!expected.known()) {
        expected =
            digest_of_etag(linked.empty() ? head.header("etag") : linked);
      }
    };
    const auto data = [&](std::string_view piece) {
      NIBBLE_CHECK(!length || part.size() + piece.size() <= *length,
                   kCorruptData,
                   "{}: found more than the {} bytes that the hub told",
                   what,
                   *length);
      part.append(piece);
    };
    const Outcome outcome = get({.url = url,
                                 .token = options_.token,
                                 .from = from,
                                 .begin = begin,
                                 .data = data,
                                 .stopped = options_.stopped});
    const int status = outcome.head.status;
    const bool ended = outcome.broken.empty() && status / 100 == 2;
    complete = ended && (!length || part.size() == *length);
    if (complete) {
      break;
    }
    if (part.size() > from) {
      patience.progressed();
    } else if (status == 416) {
      part.restart();  // nothing behind what is there: it is something else
      patience.wait_after(outcome);
    } else if (!outcome.broken.empty() || may_pass(status)) {
      patience.wait_after(outcome);
    } else if (!ended) {
      refuse(outcome.head, what, id, !options_.token.empty());
    } else {
      fail(ErrorCode::kCorruptData,
           "{}: found {} bytes, expected the {} that the hub told",
           what,
           part.size(),
           *length);
    }
  }
  part.sync();
  const ContentDigest found = digest_like(expected, path);
  if (found.text() != expected.text()) {
    fs::remove(path);
    fail_with_hint(ErrorCode::kCorruptData,
                   "the file was deleted; run the command again",
                   "{}: found {}, expected {}",
                   what,
                   found.text(),
                   expected.text());
  }
  return found;
}

}  // namespace nibble::store::hub
