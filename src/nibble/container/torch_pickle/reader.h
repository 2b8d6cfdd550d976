#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// Opens a file written by torch.save (zip form). Its tensors come in the order
// of the pickled dictionary; strided and shared storages are read through, so
// read() gives row-major elements for all of them, and map() only contiguous
// ones. Nothing in the file is executed. No tensor data is read here.
//
// kCorruptData: a cut or lying archive or pickle, a tensor outside its
// storage. kUnsupported: compressed members, another byte order, the form
// before torch 1.6, objects that are no tensors (docs/formats/torch.md).
[[nodiscard]] std::unique_ptr<CheckpointReader> open_torch_file(
    const std::filesystem::path& path);

}  // namespace nibble::container
