#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace nibble::store::hub {

// A hub on a port of this machine, for tests: serves one model as the Hugging
// Face hub does, in as far as downloads see it, and misbehaves on request.
class FakeHub {
 public:
  // What one request asked for.
  struct Seen {
    std::string path;
    std::string range;          // header, or ""
    std::string authorization;  // header, or ""
  };

  // How a request is answered instead of rightly.
  struct Fault {
    int status = 0;  // 0: as a right answer
    std::string retry_after = {};
    std::string error_code = {};  // X-Error-Code
    std::string location = {};    // of a redirection
    // The connection breaks off after so many bytes of the body.
    std::optional<std::size_t> cut_after = {};
    std::optional<std::string> body = {};  // instead of the right one
    bool ignore_range = false;
    bool without_etag = false;
  };

  explicit FakeHub(std::string id = "me/tale");
  ~FakeHub();
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  // "http://127.0.0.1:PORT"
  [[nodiscard]] std::string endpoint() const;

  // Adds a file; large ones have a SHA-256 and are served from another
  // path, as from another server.
  void add(const std::string& path,
           const std::string& content,
           bool lfs = false);

  void set_commit(const std::string& commit) { commit_ = commit; }

  // Puts text in the place of the list of files.
  void set_listing(const std::string& text) { listing_ = text; }

  // Leaves sizes and digests out of the list, as some mirrors do.
  void hide_details() { hide_details_ = true; }

  // Answers the next request whose path contains part with fault.
  void fail_next(const std::string& part, const Fault& fault);

  // Only who comes with this token may have anything.
  void require_token(const std::string& token) { token_ = token; }

  [[nodiscard]] std::vector<Seen> seen() const;
  // How often files were asked for whose path contains part.
  [[nodiscard]] std::size_t count(const std::string& part) const;
  // Whether this range was asked for.
  [[nodiscard]] bool saw_range(const std::string& range) const;

 private:
  struct Impl;

  struct File {
    std::string content;
    std::string digest;
    bool lfs = false;
  };

  std::string listing() const;
  std::optional<Fault> take_fault(const std::string& path);

  std::string id_;
  std::string commit_ = std::string(40, 'a');
  std::string listing_;
  std::string token_;
  bool hide_details_ = false;
  std::vector<std::pair<std::string, File>> files_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Seen> seen_;
  std::vector<std::pair<std::string, Fault>> faults_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble::store::hub
