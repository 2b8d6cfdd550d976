#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nibble/base/ranks/ranks.h"
#include "nibble/quant/pipeline/execute/execute.h"
#include "nibble/quant/pipeline/partial/journal.h"

namespace nibble::quant {

// How the processes of a job divide its items and tell one another the results.
// All functions are collective (Ranks) and give the same in every process.

// kInvalidArgument unless all processes have the same job.
void expect_same_job(Ranks& ranks, const JobKey& key);

// Whether this process is to compare the bytes of an item that a journal
// claims.
[[nodiscard]] bool checks_item(const Ranks& ranks, std::size_t item);

// Forgets claims that the process which was to compare them, or any that does
// not see them, has not.
void agree_on(Ranks& ranks, std::vector<std::optional<ItemResult>>& claims);

// Whether this process is to do an item: the undone ones are cut into runs of
// equal weight.
[[nodiscard]] std::vector<bool> own_items(
    const Ranks& ranks,
    const std::vector<std::optional<ItemResult>>& done,
    std::span<const std::uint64_t> weights);

// Completes results, of which this process knows those of its own items, with
// those of the others; gives the numbers of the items that came from others.
std::vector<std::size_t> exchange(Ranks& ranks,
                                  const std::vector<bool>& own,
                                  std::vector<ItemResult>& results);

}  // namespace nibble::quant
