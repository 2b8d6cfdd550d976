// Encoding speed in bytes of source weights a second, beside a loop that only
// reads the same memory, all on one thread.
//   bench/nibble_encode_bench [--benchmark_filter=...]

#include <algorithm>
#include <cstdint>
#include <malloc.h>
#include <random>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "nibble/base/cpu.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/schemes/fp8/scheme.h"
#include "nibble/quant/schemes/integer/scheme.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// Larger than the last-level cache, encoded a few rows at a time as the
// pipeline does.
constexpr std::int64_t kRows = 16384;
constexpr std::int64_t kColumns = 4096;
constexpr std::int64_t kTileRows = 32;

const Tensor& weights(DType dtype) {
  static const auto make = [](DType type) {
    Tensor tensor(type, {kRows, kColumns});
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.02F);
    std::vector<float> row(static_cast<std::size_t>(kColumns));
    for (std::int64_t r = 0; r < kRows; ++r) {
      // A row is repeated, rotated: values matter little here.
      if (r % 64 == 0) {
        std::ranges::generate(row, [&] { return normal(random); });
      }
      std::ranges::rotate(row, row.begin() + 1);
      convert_from_float(row, tensor.view().rows(r, 1));
    }
    return tensor;
  };
  static const Tensor bf16 = make(DType::kBF16);
  static const Tensor f32 = make(DType::kF32);
  return dtype == DType::kBF16 ? bf16 : f32;
}

// Sums every word with enough independent accumulators to wait for memory
// only.
void read_memory(benchmark::State& state) {
  const ConstTensorView view = weights(DType::kBF16).view();
  const auto words = std::span<const std::uint64_t>(
      reinterpret_cast<const std::uint64_t*>(view.data()), view.bytes() / 8);
  for (auto _ : state) {
    std::uint64_t sums[16] = {};
    for (std::size_t i = 0; i + 16 <= words.size(); i += 16) {
      for (std::size_t lane = 0; lane < 16; ++lane) {
        sums[lane] += words[i + lane];
      }
    }
    for (std::uint64_t& sum : sums) {
      benchmark::DoNotOptimize(sum);
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(view.bytes()));
}

struct Case {
  const char* name;
  NumberSpec spec;
  DType dtype;
  Numerics numerics;
};

// Encodes tile by tile and packs as compressed-tensors stores the codes.
void encode(benchmark::State& state, const Case& test, Isa isa) {
  const ConstTensorView view = weights(test.dtype).view();
  EncodeOptions options;
  options.numerics = test.numerics;
  const auto run = test.spec.floating ? fp8::encode : integer::encode;
  const Format& format = format_named("compressed_tensors");
  const LayerSpec layer{test.spec, {}};
  const std::int64_t step =
      std::max<std::int64_t>(kTileRows, test.spec.block_rows);
  std::size_t packed = 0;
  for (auto _ : state) {
    for (std::int64_t row = 0; row < kRows; row += step) {
      const Quantized codes =
          run(test.spec, view.rows(row, step), options, isa);
      format.pack("layer",
                  layer,
                  kRows,
                  row,
                  codes,
                  [&](std::string_view /*name*/,
                      std::uint64_t /*offset*/,
                      std::span<const std::byte> bytes) {
                    packed += bytes.size();
                    benchmark::DoNotOptimize(bytes.data());
                  });
    }
  }
  benchmark::DoNotOptimize(packed);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(view.bytes()));
}

void decode(benchmark::State& state, const Case& test) {
  const Scheme& scheme = test.spec.floating ? fp8_scheme() : integer_scheme();
  const ConstTensorView view = weights(test.dtype).view().rows(0, kTileRows);
  const Quantized quantized = scheme.encode(test.spec, view, {});
  Tensor decoded(test.dtype, view.shape());
  for (auto _ : state) {
    scheme.decode(quantized, decoded.view());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(view.bytes()));
}

NumberSpec spec_of(int bits, bool symmetric, Grain grain, std::int64_t group) {
  NumberSpec spec;
  spec.scheme = bits == 4 ? "int4" : "int8";
  spec.bits = bits;
  spec.symmetric = symmetric;
  spec.grain = grain;
  spec.group = group;
  return spec;
}

NumberSpec fp8_spec(Grain grain) {
  NumberSpec spec = spec_of(8, true, grain, 0);
  spec.scheme = "fp8";
  spec.floating = true;
  spec.block_rows = grain == Grain::kBlock ? 128 : 0;
  spec.block_columns = spec.block_rows;
  return spec;
}

void add_all() {
  benchmark::RegisterBenchmark("read_memory", read_memory);
  const auto exact = Numerics::kExact;
  const auto reference = Numerics::kReference;
  const Case cases[] = {
      {"int4_g128", spec_of(4, true, Grain::kGroup, 128), DType::kBF16, exact},
      {"int4_g128_asym",
       spec_of(4, false, Grain::kGroup, 128),
       DType::kBF16,
       exact},
      {"int4_g32", spec_of(4, true, Grain::kGroup, 32), DType::kBF16, exact},
      {"int4_g128_reference",
       spec_of(4, true, Grain::kGroup, 128),
       DType::kBF16,
       reference},
      {"int4_g128_f32",
       spec_of(4, true, Grain::kGroup, 128),
       DType::kF32,
       exact},
      {"int8_channel",
       spec_of(8, true, Grain::kChannel, 0),
       DType::kBF16,
       exact},
      {"fp8_channel", fp8_spec(Grain::kChannel), DType::kBF16, exact},
      {"fp8_block", fp8_spec(Grain::kBlock), DType::kBF16, exact},
  };
  for (const Case& test : cases) {
    for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
      if (cpu_has(isa)) {
        benchmark::RegisterBenchmark(
            fmt::format("encode/{}/{}", test.name, isa_name(isa)).c_str(),
            [test, isa](benchmark::State& state) { encode(state, test, isa); });
      }
    }
    benchmark::RegisterBenchmark(
        fmt::format("decode/{}", test.name).c_str(),
        [test](benchmark::State& state) { decode(state, test); });
  }
}

}  // namespace
}  // namespace nibble::quant

int main(int argc, char** argv) {
  // What a tile gives back, the next one takes: without this, the pages that
  // the system clears for each tile take a tenth of the time.
  constexpr int kKeep = 32 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeep);
  mallopt(M_MMAP_THRESHOLD, kKeep);
  nibble::quant::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
