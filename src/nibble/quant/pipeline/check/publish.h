#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

using StepHook = std::function<void(std::string_view step)>;

// Copies the source's side files into directory, byte for byte, and reads each
// copy back. kIo when a copy differs or cannot be written.
[[nodiscard]] std::vector<CopiedFile> copy_side_files(
    const load::CheckpointDirectory& source,
    const std::filesystem::path& directory,
    const StepHook& before_step);

// Size and digest of a file, without a name.
[[nodiscard]] CopiedFile digest_of_file(const std::filesystem::path& path);

// Makes the names in directory, and below it, durable; files are not synced.
void sync_tree(const std::filesystem::path& directory);

// Renames a complete directory to output; what is there changes places with it
// at once and is removed afterwards.
void put_in_place(const std::filesystem::path& complete,
                  const std::filesystem::path& output,
                  const StepHook& before_step);

// Makes partial appear as output at once: everything in it is durable before
// its name changes. With overwrite a checkpoint at output changes places with
// it and is removed afterwards; kIo when anything else has come to be there.
void publish(const std::filesystem::path& partial,
             const std::filesystem::path& output,
             bool overwrite,
             const StepHook& before_step);

}  // namespace nibble::quant
