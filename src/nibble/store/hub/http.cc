#include "nibble/store/hub/http.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <memory>
#include <optional>

#include <curl/curl.h>
#include <fmt/core.h>

#include "nibble/base/error.h"

namespace nibble::store::hub {
namespace {

constexpr int kMaxRedirections = 10;
constexpr std::size_t kMaxHeaders = 200;
constexpr long kConnectSeconds = 30;
constexpr long kSilenceSeconds = 60;

struct CloseHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

using Handle = std::unique_ptr<CURL, CloseHandle>;
using List = std::unique_ptr<curl_slist, FreeList>;

// Sets up the library once a process, whichever thread comes first.
void start_library() {
  [[maybe_unused]] static const CURLcode kStarted =
      curl_global_init(CURL_GLOBAL_DEFAULT);
}

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) {
    return "";
  }
  std::string result = text;
  curl_free(text);
  return result;
}

// "https://huggingface.co:443", or nothing when text is no URL of the web.
std::optional<std::string> origin_of(const std::string& text) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return std::nullopt;
  }
  const std::string scheme = url_part(url.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") {
    return std::nullopt;
  }
  return fmt::format("{}://{}:{}",
                     scheme,
                     url_part(url.get(), CURLUPART_HOST),
                     url_part(url.get(), CURLUPART_PORT));
}

bool is_redirection(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 ||
         status == 308;
}

// One exchange, without redirections. Callbacks come through C code, which no
// exception may cross: it waits here until the library has returned.
class Exchange {
 public:
  // linked: headers of earlier answers that stand for this one's, too.
  Exchange(const Request& request,
           std::string url,
           bool with_token,
           std::map<std::string, std::string> linked)
      : request_(request),
        url_(std::move(url)),
        linked_(std::move(linked)),
        handle_(curl_easy_init()) {
    NIBBLE_CHECK(handle_ != nullptr, kInternal, "libcurl: found no handle");
    if (with_token && !request.token.empty()) {
      add_header("Authorization: Bearer " + request.token);
    }
    if (request.from > 0) {
      add_header(fmt::format("Range: bytes={}-", request.from));
    }
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_USERAGENT, "nibble/" NIBBLE_VERSION);
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, kSilenceSeconds);
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Exchange::on_data);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Exchange::on_progress);
    set(CURLOPT_XFERINFODATA, this);
  }

  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() = default;

  Outcome run() {
    const CURLcode code = curl_easy_perform(handle_.get());
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    NIBBLE_CHECK(
        code != CURLE_ABORTED_BY_CALLBACK, kInterrupted, "interrupted");
    Outcome outcome;
    if (code != CURLE_OK) {
      outcome.broken = error_[0] != '\0' ? error_ : curl_easy_strerror(code);
    } else {
      begin_once();  // an empty body has no first byte
      if (failure_) {
        std::rethrow_exception(failure_);
      }
    }
    outcome.head = whole_head();
    return outcome;
  }

  // Where a redirection leads, absolute; "" when it does not say.
  [[nodiscard]] std::string location() const {
    char* url = nullptr;
    curl_easy_getinfo(handle_.get(), CURLINFO_REDIRECT_URL, &url);
    return url != nullptr ? url : "";
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(handle_.get(), option, value);
    NIBBLE_CHECK(code == CURLE_OK,
                 kInternal,
                 "libcurl: option {}: {}",
                 static_cast<int>(option),
                 curl_easy_strerror(code));
  }

  void add_header(const std::string& line) {
    curl_slist* longer = curl_slist_append(headers_.get(), line.c_str());
    NIBBLE_CHECK(longer != nullptr, kInternal, "libcurl: found no memory");
    static_cast<void>(headers_.release());
    headers_.reset(longer);
  }

  template <typename Step>
  std::size_t guarded(std::size_t bytes, Step&& step) {
    try {
      step();
      return bytes;
    } catch (...) {  // NOLINT: rethrown by run()
      failure_ = std::current_exception();
      return 0;
    }
  }

  void take_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // a new answer (after a 100, say)
      head_ = {};
      const std::size_t space = line.find(' ');
      head_.status = space == std::string_view::npos
                         ? 0
                         : std::atoi(std::string(line.substr(space)).c_str());
      return;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || head_.headers.size() > kMaxHeaders) {
      return;
    }
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    std::string_view value = line.substr(colon + 1);
    const std::size_t first = value.find_first_not_of(" \t");
    const std::size_t last = value.find_last_not_of(" \t\r\n");
    head_.headers[name] = first == std::string_view::npos
                              ? ""
                              : value.substr(first, last + 1 - first);
  }

  [[nodiscard]] Head whole_head() const {
    Head head = head_;
    for (const auto& [name, value] : linked_) {
      head.headers[name] = value;
    }
    return head;
  }

  void begin_once() {
    if (!begun_ && head_.status / 100 == 2 && request_.begin) {
      guarded(1, [&] { request_.begin(whole_head()); });
    }
    begun_ = true;
  }

  static std::size_t on_header(char* data,
                               std::size_t size,
                               std::size_t count,
                               void* self) {
    auto* exchange = static_cast<Exchange*>(self);
    return exchange->guarded(size * count, [&] {
      exchange->take_header({data, size * count});
    });
  }

  static std::size_t on_data(char* data,
                             std::size_t size,
                             std::size_t count,
                             void* self) {
    auto* exchange = static_cast<Exchange*>(self);
    exchange->begin_once();
    if (exchange->failure_) {
      return 0;
    }
    return exchange->guarded(size * count, [&] {
      // What a refusal says is in its headers.
      if (exchange->head_.status / 100 == 2 && exchange->request_.data) {
        exchange->request_.data({data, size * count});
      }
    });
  }

  static int on_progress(void* self,
                         curl_off_t /*total*/,
                         curl_off_t /*now*/,
                         curl_off_t /*upload_total*/,
                         curl_off_t /*upload_now*/) {
    const auto* exchange = static_cast<const Exchange*>(self);
    return exchange->request_.stopped && exchange->request_.stopped() ? 1 : 0;
  }

  const Request& request_;
  const std::string url_;
  const std::map<std::string, std::string> linked_;
  Handle handle_;
  List headers_;
  char error_[CURL_ERROR_SIZE] = {};
  Head head_;
  bool begun_ = false;
  std::exception_ptr failure_;
};

}  // namespace

std::string Head::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Outcome get(const Request& request) {
  start_library();
  const std::optional<std::string> home = origin_of(request.url);
  NIBBLE_CHECK(home.has_value(),
               kInvalidArgument,
               "{}: found no URL, expected http:// or https://",
               printable(request.url));
  std::string url = request.url;
  std::map<std::string, std::string> linked;
  for (int i = 0; i <= kMaxRedirections; ++i) {
    Exchange exchange(request, url, origin_of(url) == home, linked);
    const Outcome outcome = exchange.run();
    const std::string next = exchange.location();
    for (const auto& [name, value] : outcome.head.headers) {
      if (name.starts_with("x-linked-") || name == "x-repo-commit") {
        linked.try_emplace(name, value);
      }
    }
    if (!outcome.broken.empty() || !is_redirection(outcome.head.status) ||
        next.empty()) {
      return outcome;
    }
    const std::optional<std::string> target = origin_of(next);
    NIBBLE_CHECK(target && (!home->starts_with("https:") ||
                            target->starts_with("https:")),
                 kIo,
                 "{}: found a redirection to {}, expected one to https://",
                 printable(request.url),
                 printable(next));
    url = next;
  }
  fail(ErrorCode::kIo,
       "{}: found more than {} redirections",
       printable(request.url),
       kMaxRedirections);
}

std::string url_encode(std::string_view text, std::string_view kept) {
  std::string result;
  for (const char c : text) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 ||
        std::string_view("-._~").find(c) != std::string_view::npos ||
        kept.find(c) != std::string_view::npos;
    result += plain ? std::string(1, c)
                    : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

}  // namespace nibble::store::hub
