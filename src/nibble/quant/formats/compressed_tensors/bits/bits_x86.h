#pragma once

#include <cstddef>
#include <cstdint>

// Plain data only: sources built for one instruction set include this header.
namespace nibble::quant::compressed_tensors {

// pack_row for as many codes as make whole vectors; returns how many.
std::size_t pack4_avx2(const std::uint8_t* codes,
                       std::size_t count,
                       std::uint8_t* out);
std::size_t pack8_avx2(const std::uint8_t* codes,
                       std::size_t count,
                       std::uint8_t* out);

}  // namespace nibble::quant::compressed_tensors
