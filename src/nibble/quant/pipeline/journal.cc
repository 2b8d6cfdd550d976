#include "nibble/quant/pipeline/journal.h"

#include <bit>
#include <string_view>
#include <sys/file.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/hash.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxJournalBytes = std::uint64_t{1} << 30;

std::string digest_of(std::string_view text) {
  return hash_bytes(std::as_bytes(std::span(text)));
}

// Lines whose digest is right, up to the first that is not: what follows a
// damaged line was not written by us either. end becomes the byte after them.
std::vector<std::string> valid_lines(std::string_view text,
                                     std::uint64_t& end) {
  std::vector<std::string> lines;
  end = 0;
  while (true) {
    const std::string_view rest = text.substr(end);
    const std::size_t newline = rest.find('\n');
    const std::size_t space = rest.find(' ');
    if (newline == std::string_view::npos || space > newline) {
      return lines;
    }
    const std::string_view body = rest.substr(space + 1, newline - space - 1);
    if (digest_of(body) != rest.substr(0, space)) {
      return lines;
    }
    lines.emplace_back(body);
    end += newline + 1;
  }
}

json to_json(const JobKey& key) {
  return {{"version", key.version},
          {"source", key.source},
          {"recipe", key.recipe},
          {"plan", key.plan},
          {"source_path", key.source_path}};
}

// Nothing when the line is no key: somebody else's file, or another version's.
std::optional<JobKey> key_from(const std::string& line) {
  const json entry = json::parse(line, nullptr, false);
  JobKey key;
  for (const auto& [name, value] :
       {std::pair("version", &key.version),
        std::pair("source", &key.source),
        std::pair("recipe", &key.recipe),
        std::pair("plan", &key.plan),
        std::pair("source_path", &key.source_path)}) {
    if (!entry.is_object() || !entry.contains(name) ||
        !entry.at(name).is_string()) {
      return std::nullopt;
    }
    *value = entry.at(name).get<std::string>();
  }
  return key;
}

// What an earlier job did otherwise, or "" when nothing.
std::string difference_of(const std::optional<JobKey>& earlier,
                          const JobKey& now) {
  if (!earlier) {
    return "another version of nibble";
  }
  if (earlier->version != now.version) {
    return fmt::format("another version of nibble: {}, expected {}",
                       printable(earlier->version),
                       now.version);
  }
  if (earlier->source != now.source) {
    return earlier->source_path == now.source_path
               ? fmt::format("another source: {} changed since",
                             printable(now.source_path))
               : fmt::format("another source: {}, expected {}",
                             printable(earlier->source_path),
                             printable(now.source_path));
  }
  if (earlier->recipe != now.recipe) {
    return "another recipe";
  }
  return earlier->plan == now.plan
             ? ""
             : "other options, or another config.json of the source";
}

// Sums are kept by their bits: a figure must not change by being resumed.
json sums_json(const ErrorSums& sums) {
  return {std::bit_cast<std::uint64_t>(sums.error),
          std::bit_cast<std::uint64_t>(sums.weight),
          std::bit_cast<std::uint64_t>(sums.decoded),
          std::bit_cast<std::uint64_t>(sums.product),
          std::bit_cast<std::uint32_t>(sums.max_abs)};
}

ErrorSums sums_from(const json& bits) {
  const auto number = [&](std::size_t i) {
    return std::bit_cast<double>(bits.at(i).get<std::uint64_t>());
  };
  return {number(0),
          number(1),
          number(2),
          number(3),
          std::bit_cast<float>(bits.at(4).get<std::uint32_t>())};
}

}  // namespace

Journal Journal::open(const std::filesystem::path& directory,
                      const JobKey& key) {
  const std::filesystem::path path = directory / kJournalName;
  Journal journal(std::filesystem::exists(path) ? File::open_write(path)
                                                : File::create(path));
  if (!lock_now(journal.file_)) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "wait for it, or choose another output",
                   "output {}: found another process at work on it",
                   directory.string());
  }
  const std::uint64_t size = journal.file_.size_bytes();
  NIBBLE_CHECK(size <= kMaxJournalBytes,
               kCorruptData,
               "{}: found {} bytes, expected at most {}",
               path.string(),
               size,
               kMaxJournalBytes);
  std::string text(static_cast<std::size_t>(size), '\0');
  journal.file_.read(0, std::as_writable_bytes(std::span(text)));
  journal.lines_ = valid_lines(text, journal.end_);
  if (journal.lines_.empty()) {
    journal.append_line(to_json(key).dump());
    return journal;
  }
  const std::string difference =
      difference_of(key_from(journal.lines_.front()), key);
  if (!difference.empty()) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "repeat the earlier command to finish it, or start anew "
                   "after nibble clean " +
                       directory.string(),
                   "{}: found the partial result of {}",
                   directory.string(),
                   difference);
  }
  journal.lines_.erase(journal.lines_.begin());
  return journal;
}

bool lock_now(const File& file) {
  return ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0;
}

std::vector<std::optional<ItemResult>> Journal::take_results(
    std::size_t items) {
  std::vector<std::optional<ItemResult>> results(items);
  for (const std::string& line : lines_) {
    const json entry = json::parse(line, nullptr, false);
    // Lines with a right digest and this plan's hash are ours.
    const auto item = entry.at("item").get<std::size_t>();
    NIBBLE_CHECK(item < items,
                 kCorruptData,
                 "{}: found item {}, expected fewer than {}",
                 file_.path().string(),
                 item,
                 items);
    results[item] =
        ItemResult{entry.at("source").get<std::string>(),
                   entry.at("outputs").get<std::vector<std::string>>(),
                   sums_from(entry.at("sums"))};
  }
  lines_.clear();
  return results;
}

void Journal::append(std::size_t item, const ItemResult& result) {
  append_line(json{{"item", item},
                   {"source", result.source_checksum},
                   {"outputs", result.output_checksums},
                   {"sums", sums_json(result.sums)}}
                  .dump());
}

void Journal::append_line(const std::string& text) {
  const std::string line = digest_of(text) + " " + text + "\n";
  file_.write(end_, std::as_bytes(std::span(line)));
  end_ += line.size();
}

std::optional<JobKey> Journal::key_in(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kJournalName;
  if (!std::filesystem::exists(path)) {
    return std::nullopt;
  }
  std::uint64_t end = 0;
  const std::vector<std::string> lines =
      valid_lines(read_text_file(path, kMaxJournalBytes), end);
  return lines.empty() ? std::nullopt : key_from(lines.front());
}

}  // namespace nibble::quant
