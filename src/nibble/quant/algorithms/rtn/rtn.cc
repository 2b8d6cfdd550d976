#include "nibble/quant/algorithms/rtn/rtn.h"

namespace nibble::quant {
namespace {

class RoundToNearest final : public Algorithm {
 public:
  [[nodiscard]] std::string_view name() const override { return "rtn"; }

  [[nodiscard]] Needs needs() const override { return Needs::kNothing; }

  [[nodiscard]] bool row_separable() const override { return true; }

  [[nodiscard]] std::vector<Quantized> run(
      const LayerJob& job,
      const Scheme& scheme,
      const Statistics* /*statistics*/) const override {
    std::vector<Quantized> results;
    results.reserve(job.members.size());
    for (const LayerJob::Member& member : job.members) {
      results.push_back(with_context(member.module, [&] {
        return scheme.encode(member.spec, member.weight, member.options);
      }));
    }
    return results;
  }
};

}  // namespace

const Algorithm& rtn_algorithm() {
  static const RoundToNearest algorithm;
  return algorithm;
}

}  // namespace nibble::quant
