#include "nibble/quant/pipeline/partial/shared_work.h"

#include <string>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/quant/pipeline/partial/share.h"

namespace nibble::quant {

void expect_same_job(Ranks& ranks, const JobKey& key) {
  const std::vector<std::string> jobs = ranks.gather(
      key.version + "\n" + key.source + "\n" + key.recipe + "\n" + key.plan);
  ranks.together([&] {
    if (jobs[static_cast<std::size_t>(ranks.rank())] != jobs.front()) {
      fail_with_hint(
          ErrorCode::kInvalidArgument,
          "all machines need the same version of nibble and must see "
          "the same files",
          "found another source, recipe or version of nibble than "
          "rank 0");
    }
  });
}

bool checks_item(const Ranks& ranks, std::size_t item) {
  return item % static_cast<std::size_t>(ranks.count()) ==
         static_cast<std::size_t>(ranks.rank());
}

void agree_on(Ranks& ranks, std::vector<std::optional<ItemResult>>& claims) {
  std::string own(claims.size(), '0');
  for (std::size_t i = 0; i < claims.size(); ++i) {
    own[i] = claims[i] ? '1' : '0';
  }
  for (const std::string& others : ranks.gather(own)) {
    for (std::size_t i = 0; i < claims.size(); ++i) {
      if (others[i] == '0') {
        claims[i].reset();
      }
    }
  }
}

std::vector<bool> own_items(const Ranks& ranks,
                            const std::vector<std::optional<ItemResult>>& done,
                            std::span<const std::uint64_t> weights) {
  std::vector<std::size_t> items;
  std::vector<std::uint64_t> undone;
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (!done[i]) {
      items.push_back(i);
      undone.push_back(weights[i]);
    }
  }
  const std::vector<std::size_t> ends =
      cut_evenly(undone, static_cast<std::size_t>(ranks.count()));
  std::vector<bool> own(done.size());
  const auto rank = static_cast<std::size_t>(ranks.rank());
  for (std::size_t i = ends[rank]; i < ends[rank + 1]; ++i) {
    own[items[i]] = true;
  }
  return own;
}

std::vector<std::size_t> exchange(Ranks& ranks,
                                  const std::vector<bool>& own,
                                  std::vector<ItemResult>& results) {
  std::string lines;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (own[i]) {
      lines += to_line(i, results[i]) + "\n";
    }
  }
  const std::vector<std::string> all = ranks.gather(lines);
  std::vector<std::size_t> from_others;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == static_cast<std::size_t>(ranks.rank())) {
      continue;
    }
    std::size_t begin = 0;
    for (std::size_t end = all[rank].find('\n'); end != std::string::npos;
         end = all[rank].find('\n', begin)) {
      auto [item, result] = from_line(all[rank].substr(begin, end - begin));
      results.at(item) = std::move(result);
      from_others.push_back(item);
      begin = end + 1;
    }
  }
  return from_others;
}

}  // namespace nibble::quant
