#pragma once

#include "nibble/quant/core/kernels/code_loops.h"
#include "nibble/quant/schemes/fp8/codes_x86.h"

// Only for sources built for one instruction set.
namespace nibble::quant::fp8 {
namespace {

// Codes of blocks of one run; the vector form of fill() in codes.cc.
template <typename V, typename Type, bool kReference>
class Coder {
 public:
  NIBBLE_INLINE Coder(const CodeRuns& /*job*/,
                      std::size_t /*run*/,
                      const typename Type::Divide& divide)
      : divide_(divide) {}

  NIBBLE_INLINE typename V::Int block(const typename V::Block& weights) const {
    const auto& part = weights.part;
    const auto offset = V::set16(-kOffset);
    const auto a = V::pack32(magnitude(part[0]), magnitude(part[1]));
    const auto b = V::pack32(magnitude(part[2]), magnitude(part[3]));
    const auto magnitudes = V::min8_unsigned(
        V::pack16_unsigned(V::add16(a, offset), V::add16(b, offset)), 0x7E);
    // Saturating packs keep the sign bit. It is the weight's: the quotient's
    // correction step loses that of a zero.
    const auto signs = V::pack16(V::pack32(V::bits(part[0]), V::bits(part[1])),
                                 V::pack32(V::bits(part[2]), V::bits(part[3])));
    return Type::order(V::bit_or(
        magnitudes, V::bit_and(signs, V::set(static_cast<int>(0x80808080U)))));
  }

 private:
  // E4M3 bits: sign 7, exponent 6..3 (bias 7), mantissa 2..0; exponent 0 is
  // subnormal with the step of exponent 1, 2^-9.
  //
  // Let p be the quotient's power of two, at least 2^-6. A float32 near
  // p * 2^20 has the code's step, p / 8: adding that number rounds to n eighths
  // of p, ties to even, and leaves n (0 to 16) in the low bits. The code is n
  // plus 8 for each power of two above 2^-6, carries included.
  static constexpr int kPower = 20;
  // Eight times the exponent field of 2^-6 * 2^20.
  static constexpr int kOffset = 8 * (127 - 6 + kPower);

  // kOffset + the code without its sign; beyond 448 a number above that of
  // 0x7E.
  NIBBLE_INLINE typename V::Int magnitude(typename V::Float weight) const {
    auto x = divide_(weight);
    if constexpr (kReference) {
      x = Type::round(x);
    }
    const auto bits = V::bit_and(V::bits(x), V::set(0x7FFFFFFF));
    const auto power =
        V::max(V::bit_and(bits, V::set(0x7F800000)), V::set((127 - 6) << 23));
    const auto magic = V::add(power, V::set(kPower << 23));
    const auto sum = V::bits(V::add(V::floats(bits), V::floats(magic)));
    return V::add(V::sub(sum, magic), V::template shift_right<20>(magic));
  }

  typename Type::Divide divide_;
};

// Runs of BF16 weights in words of 16 bits: half the vectors of the float path,
// and no division. For one scale, a weight's code is a step function of its
// seven mantissa bits, and eight more for each power of two, unless the code is
// subnormal (below 8). Steps lie at least eight mantissas apart, so among the
// eight that share their four upper bits b there is at most one, and
//   code = (magnitude bits + offset[b]) >> 4.
// The steps come from the float path itself, a weight for each mantissa.
class Steps {
 public:
  static constexpr std::size_t kMantissas = 128;

  // codes: of the mantissas in order, in the binade of the scale's exponent.
  // False when they are no such step function.
  bool set(const std::uint8_t* codes) {
    int offset[16];
    int least = 0x7FFF;
    int most = -0x7FFF;
    std::uint64_t odd = 0;  // bits that differences of 0 or 1 do not have
    for (int b = 0; b < 16; ++b) {
      constexpr std::uint64_t kOnes = 0x0101010101010101U;
      std::uint64_t eight = 0;
      __builtin_memcpy(&eight, codes + 8 * b, sizeof eight);
      const std::uint64_t steps = eight - (eight & 0xFF) * kOnes;
      odd |= steps & ~kOnes;
      offset[b] = 16 * static_cast<int>(eight & 0xFF) + 8 - 8 * b +
                  __builtin_popcountll(steps);
      least = offset[b] < least ? offset[b] : least;
      most = offset[b] > most ? offset[b] : most;
    }
    for (int b = 0; b < 16; ++b) {
      offset_[b] = static_cast<std::uint8_t>(offset[b] - least);
    }
    least_ = least;
    return odd == 0 && most - least <= 0xFF;
  }

  // (16) less least().
  [[nodiscard]] const std::uint8_t* offsets() const { return offset_; }

  [[nodiscard]] int least() const { return least_; }

 private:
  alignas(16) std::uint8_t offset_[16] = {};
  int least_ = 0;
};

inline std::uint32_t float_bits(float x) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

// The exponent field of a float32 and of a BF16.
inline std::uint32_t exponent_of(float x) {
  return float_bits(x) >> 23 & 0xFFU;
}

// Steps of the codes that coder gives for a scale of this exponent field.
template <typename V, typename Type, typename Coder>
bool find_steps(const Coder& coder, std::uint32_t exponent, Steps& steps) {
  alignas(64) std::uint16_t weight[Steps::kMantissas];
  alignas(64) std::uint8_t codes[Steps::kMantissas];
  for (std::size_t m = 0; m < Steps::kMantissas; ++m) {
    weight[m] = static_cast<std::uint16_t>(exponent << 7 | m);
  }
  for (std::size_t i = 0; i < Steps::kMantissas; i += V::kBlock) {
    V::store(codes + i, coder.block(Type::load(weight + i)));
  }
  return steps.set(codes);
}

// The vector form of Steps for one run.
template <typename V>
class StepCoder {
 public:
  NIBBLE_INLINE StepCoder(const Steps& steps, std::uint32_t exponent)
      : offsets_(V::load_table(steps.offsets())),
        bias_(V::set16(static_cast<int>(128 * exponent) - steps.least())) {}

  // Magnitudes of the codes of a block, in the order of order_words; above
  // 0x7E for what saturates, below 8 for what this is not good for.
  NIBBLE_INLINE typename V::Int magnitudes(typename V::Int a,
                                           typename V::Int b) const {
    return V::pack16_unsigned(magnitude(a), magnitude(b));
  }

 private:
  NIBBLE_INLINE typename V::Int magnitude(typename V::Int words) const {
    // The upper byte of a word looks up a zero.
    const auto index =
        V::bit_or(V::bit_and(V::template shift_right16<3>(words), V::set16(15)),
                  V::set16(0x8000));
    const auto sum = V::add16_unsigned(V::bit_and(words, V::set16(0x7FFF)),
                                       V::look_up8(offsets_, index));
    return V::template shift_right16<4>(V::sub16_unsigned(sum, bias_));
  }

  typename V::Int offsets_;
  typename V::Int bias_;
};

template <typename V, typename Type, typename Coder>
NIBBLE_INLINE void fill_by_steps(const StepCoder<V>& steps,
                                 const Coder& coder,
                                 const CodeRuns& job,
                                 const std::uint16_t* weight,
                                 std::uint8_t* codes) {
  std::size_t i = 0;
  for (; i + V::kBlock <= job.length; i += V::kBlock) {
    fetch(weight + i, job.fetch_ahead, V::kBlock * sizeof(*weight));
    const auto a = V::load_words(weight + i);
    const auto b = V::load_words(weight + i + V::kBlock / 2);
    const auto magnitudes = steps.magnitudes(a, b);
    if (V::all_at_least8(magnitudes, 8)) [[likely]] {
      // Saturating packs keep the sign bit.
      const auto signs =
          V::bit_and(V::pack16(a, b), V::set(static_cast<int>(0x80808080U)));
      V::store(
          codes + i,
          V::order_words(V::bit_or(V::min8_unsigned(magnitudes, 0x7E), signs)));
    } else {
      V::store(codes + i, coder.block(Type::load(weight + i)));
    }
  }
  if (i < job.length) {
    fill_rest<V, Type>(coder, weight + i, job.length - i, codes + i);
  }
}

// Makes codes by the Steps that steps_of(coder, scale) gives, where it does.
template <typename V, typename Type, typename Coder, typename StepsOf>
void fill_bf16(const CodeRuns& arguments, const StepsOf& steps_of) {
  const CodeRuns job = arguments;  // a copy that stores cannot alias
  for_each_run<V, Type>(
      job,
      [&](std::size_t run,
          const typename Type::Divide& divide,
          const std::uint16_t* weight,
          std::uint8_t* codes) {
        const Coder coder(job, run, divide);
        const float scale = job.scales[run];
        const Steps* steps = steps_of(coder, scale);
        if (steps == nullptr) {
          fill_run<V, Type>(coder, weight, job.length, job.fetch_ahead, codes);
        } else {
          fill_by_steps<V, Type>(StepCoder<V>(*steps, exponent_of(scale)),
                                 coder,
                                 job,
                                 weight,
                                 codes);
        }
      });
}

template <typename V, typename Type, bool kReference>
struct Fill {
  static void run(const CodeRuns& job) {
    fill_runs<V, Type, Coder<V, Type, kReference>>(job);
  }
};

// Steps for each mantissa of a BF16 scale.
template <typename V, typename Type, typename Coder>
class AllSteps {
 public:
  AllSteps() {
    for (std::size_t m = 0; m < Steps::kMantissas; ++m) {
      const std::uint32_t bits = 127U << 23 | static_cast<std::uint32_t>(m)
                                                  << 16;
      float scale = 0;
      __builtin_memcpy(&scale, &bits, sizeof scale);
      const typename Type::Divide::Scales scales(&scale, 1);
      const Coder coder({}, 0, scales.at(0));
      good_[m] = find_steps<V, Type>(coder, exponent_of(scale), steps_[m]);
    }
  }

  // Null where codes are no step function as Steps needs it.
  [[nodiscard]] const Steps* of(float scale) const {
    const std::uint32_t m = float_bits(scale) >> 16 & 0x7FU;
    return good_[m] ? &steps_[m] : nullptr;
  }

 private:
  Steps steps_[Steps::kMantissas];
  bool good_[Steps::kMantissas] = {};
};

template <typename V, bool kReference>
struct Fill<V, TypeBF16<V, ShortDivision<V>>, kReference> {
  using Type = TypeBF16<V, ShortDivision<V>>;
  using Coder = fp8::Coder<V, Type, kReference>;

  static void run(const CodeRuns& arguments) {
    static const AllSteps<V, Type, Coder> all;
    fill_bf16<V, Type, Coder>(
        arguments,
        [](const Coder& /*coder*/, float scale) { return all.of(scale); });
  }
};

template <typename V, bool kReference>
struct Fill<V, TypeBF16<V, Division<V>>, kReference> {
  using Type = TypeBF16<V, Division<V>>;
  using Coder = fp8::Coder<V, Type, kReference>;

  static void run(const CodeRuns& arguments) {
    // Finding steps costs as much as the codes of some 200 weights.
    constexpr std::size_t kLeastRun = 1024;
    if (arguments.length < kLeastRun) {
      fill_runs<V, Type, Coder>(arguments);
      return;
    }
    Steps steps;
    fill_bf16<V, Type, Coder>(
        arguments, [&](const Coder& coder, float scale) -> const Steps* {
          return find_steps<V, Type>(coder, exponent_of(scale), steps)
                     ? &steps
                     : nullptr;
        });
  }
};

// Exponent and mantissa moved into their place in a float32, subnormals
// included, give the value less 2^120; 0x7F is NaN.
template <typename V>
struct Value {
  static NIBBLE_INLINE typename V::Float of(typename V::Int codes,
                                            typename V::Float /*zero*/,
                                            typename V::Float scale) {
    const auto magnitude = V::bit_and(codes, V::set(0x7F));
    const auto sign = V::bit_and(codes, V::set(static_cast<int>(0x80000000U)));
    const auto nan = V::equal(magnitude, V::set(0x7F));
    const auto moved = V::bit_or(sign, V::template shift_left<20>(magnitude));
    const auto value =
        V::mul(V::mul(V::floats(moved), V::set(0x1p120F)), scale);
    return V::floats(V::bit_or(V::bits(value), nan));
  }
};

}  // namespace
}  // namespace nibble::quant::fp8
