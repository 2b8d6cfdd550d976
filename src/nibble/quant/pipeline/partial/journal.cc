#include "nibble/quant/pipeline/partial/journal.h"

#include <algorithm>
#include <bit>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/hash/hash.h"

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

std::string text_of(const File& file) {
  const std::uint64_t size = file.size_bytes();
  NIBBLE_CHECK(size <= kMaxJournalBytes,
               kCorruptData,
               "{}: found {} bytes, expected at most {}",
               file.path().string(),
               size,
               kMaxJournalBytes);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
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

// The journal of a process, made empty when there is none. Never emptied: it
// may be another process's that came first.
File open_journal(const std::filesystem::path& path) {
  const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (made < 0) {
    fail_errno("open", path.string());
  }
  ::close(made);
  return File::open_write(path);
}

bool lock_now(const File& file) {
  return ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0;
}

// Whether name is that of a journal.
bool names_journal(const std::string& name) {
  const std::string first = kJournalName;
  if (!name.starts_with(first) || name == first) {
    return name == first;
  }
  return name[first.size()] == '.' && name.size() > first.size() + 1 &&
         name.find_first_not_of("0123456789", first.size() + 1) ==
             std::string::npos;
}

void refuse_other_job(const std::filesystem::path& directory,
                      const std::string& line,
                      const JobKey& key) {
  const std::string difference = difference_of(key_from(line), key);
  if (!difference.empty()) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "repeat the earlier command to finish it, or start anew "
                   "after nibble clean " +
                       directory.string(),
                   "{}: found the partial result of {}",
                   directory.string(),
                   difference);
  }
}

}  // namespace

std::string to_line(std::size_t item, const ItemResult& result) {
  return json{{"item", item},
              {"source", result.source_checksum},
              {"outputs", result.output_checksums},
              {"sums", sums_json(result.sums)}}
      .dump();
}

std::pair<std::size_t, ItemResult> from_line(const std::string& line) {
  const json entry = json::parse(line);
  return {entry.at("item").get<std::size_t>(),
          ItemResult{entry.at("source").get<std::string>(),
                     entry.at("outputs").get<std::vector<std::string>>(),
                     sums_from(entry.at("sums"))}};
}

Journal Journal::open(const std::filesystem::path& directory,
                      const JobKey& key,
                      int number) {
  std::filesystem::path path = directory / kJournalName;
  if (number > 0) {
    path += fmt::format(".{}", number);
  }
  Journal journal(open_journal(path));
  if (!lock_now(journal.file_)) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "wait for it, or choose another output",
                   "output {}: found another process at work on it",
                   directory.string());
  }
  const std::vector<std::string> lines =
      valid_lines(text_of(journal.file_), journal.end_);
  if (lines.empty()) {
    journal.append_line(to_json(key).dump());
  } else {
    refuse_other_job(directory, lines.front(), key);
  }
  return journal;
}

void Journal::append(std::size_t item, const ItemResult& result) {
  append_line(to_line(item, result));
}

void Journal::append_line(const std::string& text) {
  const std::string line = fmt::format("{} {}\n", digest_of(text), text);
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
      valid_lines(text_of(File::open_read(path)), end);
  return lines.empty() ? std::nullopt : key_from(lines.front());
}

std::vector<std::filesystem::path> journals_in(
    const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> journals;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (names_journal(entry.path().filename().string())) {
      journals.push_back(entry.path());
    }
  }
  std::sort(journals.begin(), journals.end());
  return journals;
}

std::optional<std::vector<File>> lock_all(
    const std::vector<std::filesystem::path>& journals) {
  std::vector<File> locked;
  for (const std::filesystem::path& path : journals) {
    locked.push_back(File::open_read(path));
    if (!lock_now(locked.back())) {
      return std::nullopt;
    }
  }
  return locked;
}

std::vector<std::optional<ItemResult>> claims_in(
    const std::filesystem::path& directory,
    const JobKey& key,
    std::size_t items) {
  std::vector<std::optional<ItemResult>> claims(items);
  for (const std::filesystem::path& path : journals_in(directory)) {
    std::uint64_t end = 0;
    const std::vector<std::string> lines =
        valid_lines(text_of(File::open_read(path)), end);
    if (lines.empty()) {
      continue;
    }
    refuse_other_job(directory, lines.front(), key);
    for (std::size_t i = 1; i < lines.size(); ++i) {
      // Lines with a right digest and this plan's hash are ours.
      auto [item, result] = from_line(lines[i]);
      NIBBLE_CHECK(item < items,
                   kCorruptData,
                   "{}: found item {}, expected fewer than {}",
                   path.string(),
                   item,
                   items);
      claims[item] = std::move(result);
    }
  }
  return claims;
}

}  // namespace nibble::quant
