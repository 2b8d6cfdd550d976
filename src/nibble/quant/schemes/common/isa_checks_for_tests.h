#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/quant/core/kernels/encode_tile.h"
#include "nibble/tensor/convert.h"

// What the tests of each scheme's kernels ask: that every set of instructions
// gives what the portable reference gives.
namespace nibble::quant {

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.view().data(), b.view().data(), a.bytes()) == 0;
}

// Compares the code kernels alone, on runs with given scales.
inline void expect_same_codes(const CodeFunctions& functions,
                              CodeRuns job,
                              std::size_t count) {
  job.runs = 1;
  job.length = count;
  job.low = -128;
  job.high = 127;
  std::vector<std::uint8_t> expected(count);
  std::vector<std::uint8_t> found(count);
  job.codes = expected.data();
  functions.portable(job);
  job.codes = found.data();
  functions.fast(job);
  ASSERT_EQ(found, expected) << "scale " << *job.scales;
}

// functions: for BF16 weights and scales of any type.
inline void expect_pairs_divided(const CodeFunctions& functions) {
  // Weights from 2^-12 to 2^9 times the scale's power of two, all mantissas.
  std::vector<std::uint16_t> weights;
  for (int bits = (127 - 12) << 7; bits < (127 + 9) << 7; ++bits) {
    weights.push_back(static_cast<std::uint16_t>(bits));
    weights.push_back(static_cast<std::uint16_t>(bits | 0x8000));
  }
  for (int mantissa = 0; mantissa < 128; ++mantissa) {
    const float scale =
        bf16_to_float(static_cast<std::uint16_t>(0x3F80 + mantissa));
    expect_same_codes(functions,
                      {.weight = weights.data(), .scales = &scale},
                      weights.size());
  }
}

// functions: for F32 weights and scales, exact.
inline void expect_ties_divided(const CodeFunctions& functions) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> scales(0x1p-59F, 0x1p-57F);
  for (int round = 0; round < 500; ++round) {
    // Scales over the whole fast domain.
    const float scale = std::ldexp(scales(random), round % 117);
    std::vector<float> weights;
    for (int code = -127; code < 127; ++code) {
      const float tie = (static_cast<float>(code) + 0.5F) * scale;
      weights.push_back(std::nextafter(tie, -HUGE_VALF));
      weights.push_back(tie);
      weights.push_back(std::nextafter(tie, HUGE_VALF));
    }
    expect_same_codes(functions,
                      {.weight = weights.data(), .scales = &scale},
                      weights.size());
  }
}

// Every code, at every offset into a vector, and every length of the last one.
inline void expect_same_values(ValueFn portable, ValueFn fast) {
  std::vector<std::uint8_t> codes(256 + 64);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>(i);
  }
  for (std::size_t count = 1; count <= codes.size(); ++count) {
    for (const float scale : {0.37F, 1e-38F, 3e35F}) {
      std::vector<float> expected(count);
      std::vector<float> found(count + 1, -1.0F);
      portable(codes.data(), count, 3, scale, expected.data());
      fast(codes.data(), count, 3, scale, found.data());
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(found[i] == expected[i] ||
                    (std::isnan(found[i]) && std::isnan(expected[i])))
            << "code " << i << " of " << count << " scale " << scale;
        ASSERT_TRUE(std::isnan(found[i]) ||
                    std::signbit(found[i]) == std::signbit(expected[i]))
            << i;
      }
      ASSERT_EQ(found[count], -1.0F) << "wrote beyond the end";
    }
  }
}

}  // namespace nibble::quant
