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
                      const std::string& plan_hash) {
  const std::filesystem::path path = directory / kJournalName;
  Journal journal(std::filesystem::exists(path) ? File::open_write(path)
                                                : File::create(path));
  if (::flock(journal.file_.descriptor(), LOCK_EX | LOCK_NB) != 0) {
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
    journal.append_line(plan_hash);
    return journal;
  }
  if (journal.lines_.front() != plan_hash) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "repeat the earlier command to finish it, or delete this "
                   "directory to start anew",
                   "{}: found the partial result of another source, recipe or "
                   "version of nibble",
                   directory.string());
  }
  journal.lines_.erase(journal.lines_.begin());
  return journal;
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

std::optional<std::string> Journal::plan_hash_in(
    const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kJournalName;
  if (!std::filesystem::exists(path)) {
    return std::nullopt;
  }
  std::uint64_t end = 0;
  const std::vector<std::string> lines =
      valid_lines(read_text_file(path, kMaxJournalBytes), end);
  return lines.empty() ? std::nullopt : std::optional(lines.front());
}

}  // namespace nibble::quant
