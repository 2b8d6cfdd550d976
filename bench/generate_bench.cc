// Tokens a second of a whole model, for a prompt and for decoding, beside the
// memory bandwidth measured before each round.
//   bench/nibble_generate_bench DIR [--prompt 512] [--tokens 64] [--rounds 5]
// Prints a line a round and then the medians.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "memory_bandwidth.h"
#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/memory_budget.h"
#include "nibble/base/parallel.h"
#include "nibble/load/load_model.h"
#include "nibble/quant/attach/attach.h"
#include "nibble/quant/core/registry.h"

namespace {

using nibble::model::Transformer;

struct Options {
  std::string directory;
  std::int64_t prompt = 512;
  std::int64_t tokens = 64;
  int rounds = 5;
  int threads = 0;
};

std::unique_ptr<Transformer> load(const std::string& directory) {
  const auto checkpoint = nibble::load::open_checkpoint(directory);
  const auto quantized =
      nibble::quant::open_quantized(*checkpoint.config, *checkpoint.reader);
  std::vector<const nibble::load::LayerBuilder*> builders;
  std::unique_ptr<nibble::quant::QuantizedLayerBuilder> packed;
  if (quantized) {
    packed = std::make_unique<nibble::quant::QuantizedLayerBuilder>(*quantized);
    builders.push_back(packed.get());
  }
  return nibble::load::load_model(
      checkpoint, builders, nibble::backend::cpu_backend());
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// Any ids do: every token costs the same.
std::vector<std::int32_t> some_ids(std::int64_t count,
                                   std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>((i * 7919 + 11) % vocabulary));
  }
  return ids;
}

// Tokens a second of one call over a prompt.
double prompt_speed(const Transformer& model, std::int64_t count) {
  auto cache = model.make_cache();
  const auto ids = some_ids(count, model.config().vocabulary);
  const auto start = std::chrono::steady_clock::now();
  static_cast<void>(model.forward(ids, cache, Transformer::Logits::kLast));
  return static_cast<double>(count) / seconds_since(start);
}

// The median of the speeds of single tokens that follow a short prompt.
double decode_speed(const Transformer& model, std::int64_t count) {
  auto cache = model.make_cache();
  const auto ids = some_ids(count + 8, model.config().vocabulary);
  static_cast<void>(model.forward(
      std::span(ids).first(8), cache, Transformer::Logits::kLast));
  std::vector<double> seconds;
  for (const std::int32_t& id : std::span(ids).subspan(8)) {
    const auto start = std::chrono::steady_clock::now();
    static_cast<void>(
        model.forward({&id, 1}, cache, Transformer::Logits::kLast));
    seconds.push_back(seconds_since(start));
  }
  std::ranges::nth_element(seconds, seconds.begin() + count / 2);
  return 1 / seconds[static_cast<std::size_t>(count / 2)];
}

double median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void measure(const Options& options) {
  nibble::set_thread_count(options.threads);
  const auto start = std::chrono::steady_clock::now();
  const auto model = load(options.directory);
  fmt::print(
      "loaded in {:.2f} s, {:.1f} MB of weights, peak memory {:.0f} MB\n",
      seconds_since(start),
      static_cast<double>(model->resident_bytes()) / 1e6,
      static_cast<double>(nibble::peak_resident_bytes()) / 1e6);
  std::size_t read_bytes = 0;
  model->visit_linears([&](nibble::model::LinearSlot& slot) {
    read_bytes += slot.layer->resident_bytes();
  });
  const double token_gb = static_cast<double>(read_bytes) / 1e9;
  std::vector<double> roofs;
  std::vector<double> prompts;
  std::vector<double> decodes;
  static_cast<void>(decode_speed(*model, 4));  // touches all weights once
  for (int round = 0; round < options.rounds; ++round) {
    roofs.push_back(nibble::measured_read_gbps());
    prompts.push_back(prompt_speed(*model, options.prompt));
    decodes.push_back(decode_speed(*model, options.tokens));
    fmt::print(
        "memory {:.1f} GB/s, prompt {:.1f} tokens/s, decode {:.1f} "
        "tokens/s\n",
        roofs.back(),
        prompts.back(),
        decodes.back());
  }
  fmt::print(
      "median: memory {:.1f} GB/s, prompt of {} {:.1f} tokens/s, decode "
      "{:.1f} tokens/s = {:.1f} GB/s of linear weights\n",
      median(roofs),
      options.prompt,
      median(prompts),
      median(decodes),
      median(decodes) * token_gb);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Speed of a whole model");
  Options options;
  app.add_option("directory", options.directory, "model directory")->required();
  app.add_option("--prompt", options.prompt)->check(CLI::Range(1, 1 << 20));
  app.add_option("--tokens", options.tokens)->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--threads", options.threads)->check(CLI::Range(0, 1024));
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
  } catch (const std::exception& error) {
    std::cerr << "nibble_generate_bench: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
