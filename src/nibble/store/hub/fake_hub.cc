#include "nibble/store/hub/fake_hub.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include "nibble/store/hub/digest.h"
#include "temporary_directory.h"

namespace nibble::store::hub {

using nlohmann::json;

struct FakeHub::Impl {
  httplib::Server server;
  int port = 0;
  std::thread thread;
};

namespace {

// Sends content, cut off where the fault says; the server answers ranges of it.
void send(httplib::Response& answer,
          const std::string& content,
          const std::optional<std::size_t>& cut_after) {
  if (content.empty()) {
    answer.set_content("", "application/octet-stream");
    return;
  }
  answer.set_content_provider(
      content.size(),
      "application/octet-stream",
      [content, cut_after, sent = std::size_t{0}](
          std::size_t offset,
          std::size_t length,
          httplib::DataSink& sink) mutable {
        std::size_t bytes = std::min<std::size_t>(length, 1 << 16);
        if (cut_after) {
          bytes = std::min(bytes, *cut_after - std::min(*cut_after, sent));
        }
        if (bytes == 0) {
          return false;
        }
        sent += bytes;
        return sink.write(content.data() + offset, bytes);
      });
}

}  // namespace

FakeHub::FakeHub(std::string id)
    : id_(std::move(id)), impl_(std::make_unique<Impl>()) {
  impl_->server.Get(
      ".*", [this](const httplib::Request& request, httplib::Response& answer) {
        {
          const std::lock_guard lock(mutex_);
          seen_.push_back({request.target,
                           request.get_header_value("Range"),
                           request.get_header_value("Authorization")});
        }
        const std::string& path = request.path;
        const Fault fault = take_fault(path).value_or(Fault{});
        if (fault.ignore_range) {
          const_cast<httplib::Request&>(request)
              .ranges.clear();  // NOLINT: a test
        }
        if (!fault.retry_after.empty()) {
          answer.set_header("Retry-After", fault.retry_after);
        }
        if (!fault.error_code.empty()) {
          answer.set_header("X-Error-Code", fault.error_code);
        }
        if (!fault.location.empty()) {
          answer.set_redirect(fault.location, fault.status);
          return;
        }
        if (fault.status != 0) {
          answer.status = fault.status;
          return;
        }
        if (!token_.empty() && !path.starts_with("/cdn/") &&
            request.get_header_value("Authorization") != "Bearer " + token_) {
          answer.status = 401;
          return;
        }
        if (path == "/api/models/" + id_ + "/revision/main" ||
            path == "/api/models/" + id_ + "/revision/" + commit_) {
          send(answer, fault.body.value_or(listing()), fault.cut_after);
          return;
        }
        const std::string resolve = "/" + id_ + "/resolve/" + commit_ + "/";
        for (const auto& [name, file] : files_) {
          if (path == resolve + name) {
            if (!fault.without_etag) {
              answer.set_header(file.lfs ? "X-Linked-Etag" : "ETag",
                                "\"" + file.digest + "\"");
            }
            if (file.lfs) {
              answer.set_header("X-Linked-Size",
                                std::to_string(file.content.size()));
              answer.set_redirect("/cdn/" + name, 302);
              return;
            }
          }
          if (path == (file.lfs ? "/cdn/" : resolve) + name) {
            send(answer, fault.body.value_or(file.content), fault.cut_after);
            return;
          }
        }
        answer.status = 404;
        answer.set_header(
            "X-Error-Code",
            path.starts_with("/api/") ? "RepoNotFound" : "EntryNotFound");
      });
  impl_->port = impl_->server.bind_to_any_port("127.0.0.1");
  if (impl_->port <= 0) {
    throw std::runtime_error("no port for the hub");
  }
  impl_->thread = std::thread([this] { impl_->server.listen_after_bind(); });
  while (!impl_->server.is_running()) {
    std::this_thread::yield();
  }
}

FakeHub::~FakeHub() {
  impl_->server.stop();
  impl_->thread.join();
}

std::string FakeHub::endpoint() const {
  return "http://127.0.0.1:" + std::to_string(impl_->port);
}

void FakeHub::add(const std::string& path,
                  const std::string& content,
                  bool lfs) {
  const TemporaryDirectory scratch;
  const ContentDigest kind{.sha256 = lfs ? "x" : "",
                           .git_sha1 = lfs ? "" : "x"};
  const ContentDigest digest = digest_like(kind, scratch.add("file", content));
  const File file{content, lfs ? digest.sha256 : digest.git_sha1, lfs};
  std::erase_if(files_, [&](const auto& each) { return each.first == path; });
  files_.emplace_back(path, file);
}

std::string FakeHub::listing() const {
  if (!listing_.empty()) {
    return listing_;
  }
  json siblings = json::array();
  for (const auto& [name, file] : files_) {
    json entry = {{"rfilename", name}};
    if (!hide_details_) {
      entry["size"] = file.content.size();
      entry["blobId"] = file.lfs ? std::string(40, 'b') : file.digest;
      if (file.lfs) {
        entry["lfs"] = {{"sha256", file.digest},
                        {"size", file.content.size()},
                        {"pointerSize", 134}};
      }
    }
    siblings.push_back(entry);
  }
  return json{{"id", id_}, {"sha", commit_}, {"siblings", siblings}}.dump();
}

void FakeHub::fail_next(const std::string& part, const Fault& fault) {
  const std::lock_guard lock(mutex_);
  faults_.emplace_back(part, fault);
}

std::optional<FakeHub::Fault> FakeHub::take_fault(const std::string& path) {
  const std::lock_guard lock(mutex_);
  for (auto it = faults_.begin(); it != faults_.end(); ++it) {
    if (path.find(it->first) != std::string::npos) {
      const Fault fault = it->second;
      faults_.erase(it);
      return fault;
    }
  }
  return std::nullopt;
}

std::vector<FakeHub::Seen> FakeHub::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::size_t FakeHub::count(const std::string& part) const {
  std::size_t count = 0;
  for (const Seen& each : seen()) {
    count += each.path.find(part) != std::string::npos ? 1 : 0;
  }
  return count;
}

bool FakeHub::saw_range(const std::string& range) const {
  const std::vector<Seen> all = seen();
  return std::any_of(all.begin(), all.end(), [&](const Seen& each) {
    return each.range == range;
  });
}

}  // namespace nibble::store::hub
