// Layers that compute from packed codes: for a few tokens the bytes of weights
// read a second, beside the memory bandwidth measured in the same run; for
// many tokens the multiplications and additions a second.
//   bench/nibble_linear_bench [--benchmark_filter=int4_g128.*avx512]

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "memory_bandwidth.h"
#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/cpu.h"
#include "nibble/quant/schemes/fp8/linear.h"
#include "nibble/quant/schemes/integer/linear.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

constexpr std::int64_t kColumns = 2048;
// Decoding reads far more than last-level caches hold; a prompt's time does
// not depend on it.
constexpr std::int64_t kDecodeRows = 262144;
constexpr std::int64_t kPromptRows = 5632;

struct Case {
  const char* name;
  LayerSpec spec;
};

NumberSpec number(const char* scheme,
                  int bits,
                  bool floating,
                  Grain grain,
                  std::int64_t group = 0) {
  NumberSpec spec;
  spec.scheme = scheme;
  spec.bits = bits;
  spec.floating = floating;
  spec.grain = grain;
  spec.group = group;
  if (grain == Grain::kBlock) {
    spec.group = 0;
    spec.block_rows = spec.block_columns = group;
  }
  return spec;
}

std::vector<Case> cases() {
  const NumberSpec int4 = number("int4", 4, false, Grain::kGroup, 128);
  NumberSpec int4_asym = number("int4", 4, false, Grain::kGroup, 32);
  int4_asym.symmetric = false;
  const NumberSpec int8 = number("int8", 8, false, Grain::kChannel);
  const NumberSpec fp8 = number("fp8", 8, true, Grain::kChannel);
  const NumberSpec int8_token = number("int8", 8, false, Grain::kToken);
  const NumberSpec fp8_token = number("fp8", 8, true, Grain::kToken);
  return {{"int4_g128", {int4, {}}},
          {"int4_g32_asym", {int4_asym, {}}},
          {"int4_g128_int8_token", {int4, int8_token}},
          {"int8_channel", {int8, {}}},
          {"int8_channel_int8_token", {int8, int8_token}},
          {"fp8_channel", {fp8, {}}},
          {"fp8_channel_fp8_token", {fp8, fp8_token}},
          {"fp8_block128_fp8_group",
           {number("fp8", 8, true, Grain::kBlock, 128),
            number("fp8", 8, true, Grain::kGroup, 128)}}};
}

// Pseudo-random codes, cheap enough for hundreds of millions.
Quantized slab_of(const NumberSpec& spec,
                  std::int64_t first,
                  std::int64_t rows) {
  Quantized slab;
  slab.spec = spec;
  slab.rows = rows;
  slab.columns = kColumns;
  slab.codes =
      Tensor(spec.floating ? DType::kF8E4M3 : DType::kI8, {rows, kColumns});
  auto state = static_cast<std::uint64_t>(first + 1) * 0x9E3779B97F4A7C15u;
  for (std::uint8_t& code : slab.codes.view().raw<std::uint8_t>()) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const auto bits = static_cast<std::uint8_t>(state >> 32);
    code = bits;
    if (spec.floating && (bits & 0x7Fu) == 0x7Fu) {
      code = 0;
    } else if (spec.bits == 4) {
      code = static_cast<std::uint8_t>(static_cast<std::int8_t>(bits) >> 4);
    }
  }
  const ScaleGrid grid = scale_grid(spec, rows, kColumns);
  slab.scales = Tensor(spec.scale_dtype, {grid.rows, grid.columns});
  for (std::uint16_t& scale : slab.scales.view().raw<std::uint16_t>()) {
    scale = float_to_bf16(0.01F);
  }
  if (!spec.symmetric) {
    slab.zeros = Tensor::zeros(DType::kI8, {grid.rows, grid.columns});
  }
  return slab;
}

std::unique_ptr<model::Linear> make(const LayerSpec& spec,
                                    std::int64_t rows,
                                    Isa isa) {
  const RowSource codes = [&](std::int64_t first, std::int64_t count) {
    return slab_of(spec.weight, first, count);
  };
  auto& backend = backend::cpu_backend();
  return spec.weight.floating
             ? make_fp8_linear(
                   spec, rows, kColumns, codes, {}, {}, backend, isa)
             : make_integer_linear(
                   spec, rows, kColumns, codes, {}, {}, backend, isa);
}

void multiply(benchmark::State& state,
              const LayerSpec& spec,
              Isa isa,
              std::int64_t tokens) {
  const bool decode = tokens < 16;
  const std::int64_t rows = decode ? kDecodeRows : kPromptRows;
  const auto layer = make(spec, rows, isa);
  Tensor x(DType::kF32, {tokens, kColumns});
  std::int64_t i = 0;
  for (float& value : x.view().as<float>()) {
    value = static_cast<float>(++i * 7919 % 2001 - 1000) / 500;
  }
  Tensor y(DType::kF32, {tokens, rows});
  const double roof = decode ? measured_read_gbps() : 0;
  for (auto _ : state) {
    layer->forward(
        std::as_const(x).view(), y.view(), backend::cpu_backend().stream());
    benchmark::DoNotOptimize(y.view().data());
  }
  const auto rounds = static_cast<double>(state.iterations());
  if (decode) {
    state.counters["weights_GB/s"] = benchmark::Counter(
        rounds * static_cast<double>(layer->resident_bytes()) / 1e9,
        benchmark::Counter::kIsRate);
    state.counters["memory_GB/s"] = roof;
  } else {
    state.counters["GOP/s"] = benchmark::Counter(
        rounds * 2e-9 * static_cast<double>(tokens * rows * kColumns),
        benchmark::Counter::kIsRate);
  }
}

void register_all() {
  for (const Case& c : cases()) {
    for (const Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kPortable}) {
      if (!cpu_has(isa)) {
        continue;
      }
      for (const std::int64_t tokens : {1, 4, 512}) {
        if (isa == Isa::kPortable && tokens == 4) {
          continue;  // the same kernel as for many tokens
        }
        const std::string name = std::string(c.name) + "/" +
                                 std::string(isa_name(isa)) +
                                 "/tokens:" + std::to_string(tokens);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [spec = c.spec, isa, tokens](benchmark::State& state) {
              multiply(state, spec, isa, tokens);
            })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime()
            ->MeasureProcessCPUTime();
      }
    }
  }
}

}  // namespace
}  // namespace nibble::quant

int main(int argc, char** argv) {
  nibble::quant::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
