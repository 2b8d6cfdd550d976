#pragma once

// The models' mathematics once more, as directly as it can be written: one
// token at a time, every sum in double precision, no cache, no blocks. What
// tests compare the real model with.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nibble/load/tiny_checkpoint.h"
#include "nibble/model/config.h"
#include "nibble/model/rope.h"

namespace nibble::load {

class PlainModel {
 public:
  using Vector = std::vector<double>;

  explicit PlainModel(TinyCheckpoint& weights)
      : w_(weights), c_(model::parse_config(weights.config())) {}

  // Logits of every position.
  std::vector<Vector> forward(std::span<const std::int32_t> ids) {
    const std::string model = c_.name_prefix + "model.";
    std::vector<Vector> x;
    for (const std::int32_t id : ids) {
      x.push_back(row(model + "embed_tokens.weight", id));
    }
    for (std::size_t i = 0; i < c_.layers.size(); ++i) {
      run_layer(x, i, model + "layers." + std::to_string(i) + ".");
    }
    for (Vector& token : x) {
      token = linear(
          c_.tied_head ? model + "embed_tokens" : c_.name_prefix + "lm_head",
          norm(token, model + "norm.weight"));
    }
    return x;
  }

 private:
  Vector row(const std::string& name, std::int64_t index) {
    const auto& weight = w_.at(name);
    const std::int64_t width = weight.shape[1];
    const auto begin = weight.values.begin() + index * width;
    return {begin, begin + width};
  }

  Vector linear(const std::string& module, const Vector& x) {
    const auto& weight = w_.at(module + ".weight");
    Vector y(static_cast<std::size_t>(weight.shape[0]));
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        y[o] += x[i] * weight.values[o * x.size() + i];
      }
    }
    if (w_.tensors().count(module + ".bias") != 0) {
      for (std::size_t o = 0; o < y.size(); ++o) {
        y[o] += w_.at(module + ".bias").values[o];
      }
    }
    return y;
  }

  Vector norm(const Vector& x, const std::string& weight) {
    double squares = 0;
    for (const double value : x) {
      squares += value * value;
    }
    const double root = std::sqrt(squares / static_cast<double>(x.size()) +
                                  double{c_.rms_epsilon});
    Vector y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = x[i] / root * (weight.empty() ? 1 : w_.at(weight).values[i]);
    }
    return y;
  }

  static double silu(double x) { return x / (1 + std::exp(-x)); }

  Vector mlp(const std::string& module, const Vector& x) {
    Vector gate = linear(module + ".gate_proj", x);
    const Vector up = linear(module + ".up_proj", x);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      gate[i] = silu(gate[i]) * up[i];
    }
    return linear(module + ".down_proj", gate);
  }

  // Expert e of stacked, input-major weights.
  Vector expert(const std::string& module, std::int64_t e, const Vector& x) {
    const auto& gate_up = w_.at(module + ".gate_up_proj");
    const auto& down = w_.at(module + ".down_proj");
    const auto width = static_cast<std::size_t>(down.shape[1]);
    Vector inner(2 * width);
    const auto slice = static_cast<std::size_t>(e);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t o = 0; o < 2 * width; ++o) {
        inner[o] +=
            x[i] * gate_up.values[(slice * x.size() + i) * 2 * width + o];
      }
    }
    Vector y(x.size());
    for (std::size_t i = 0; i < width; ++i) {
      const double value = silu(inner[i]) * inner[width + i];
      for (std::size_t o = 0; o < y.size(); ++o) {
        y[o] += value * down.values[(slice * width + i) * y.size() + o];
      }
    }
    return y;
  }

  Vector experts(const std::string& module, const Vector& x) {
    Vector logits = linear(module + ".router", x);
    Vector y = mlp(module + ".shared_expert", x);
    for (std::int64_t k = 0; k < c_.experts_per_token; ++k) {
      const auto best = std::max_element(logits.begin(), logits.end());
      Vector scaled = x;
      for (double& value : scaled) {
        value /= 1 + std::exp(-*best);
      }
      const Vector out =
          expert(module + ".experts", best - logits.begin(), scaled);
      for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] += out[i];
      }
      *best = -INFINITY;
    }
    return y;
  }

  // One head of q or k at a position.
  Vector head(const Vector& all,
              std::size_t index,
              std::size_t position,
              const model::LayerConfig& layer) {
    const auto width = static_cast<std::size_t>(c_.head_dim);
    const auto begin = all.begin() + static_cast<long>(index * width);
    Vector x(begin, begin + static_cast<long>(width));
    if (layer.rope) {
      const std::vector<float> frequencies = model::rope_frequencies(c_);
      for (std::size_t i = 0; i < width / 2; ++i) {
        const double angle = static_cast<double>(position) * frequencies[i];
        double& a = x[c_.rope_interleaved ? 2 * i : i];
        double& b = x[c_.rope_interleaved ? 2 * i + 1 : i + width / 2];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
    return layer.qk_norm ? norm(x, "") : x;
  }

  // Attention of token t: (heads * head_dim) before the output projection.
  Vector attend(const std::vector<Vector>& q,
                const std::vector<Vector>& k,
                const std::vector<Vector>& v,
                std::size_t t,
                const model::LayerConfig& layer) {
    const auto width = static_cast<std::size_t>(c_.head_dim);
    const auto heads = static_cast<std::size_t>(c_.heads);
    const std::size_t group = heads / static_cast<std::size_t>(c_.kv_heads);
    const auto chunk = static_cast<std::size_t>(layer.attention_chunk);
    double scale = 1 / std::sqrt(static_cast<double>(width));
    if (layer.temperature_tuning) {
      scale *= 1 + c_.attention_scale *
                       std::log(1 + std::floor((static_cast<double>(t) + 1) /
                                               c_.attention_floor_scale));
    }
    Vector y(heads * width);
    for (std::size_t h = 0; h < heads; ++h) {
      const Vector query = head(q[t], h, t, layer);
      double total = 0;
      for (std::size_t p = chunk == 0 ? 0 : t / chunk * chunk; p <= t; ++p) {
        const Vector key = head(k[p], h / group, p, layer);
        double score = 0;
        for (std::size_t i = 0; i < width; ++i) {
          score += query[i] * key[i];
        }
        const double weight = std::exp(score * scale);
        total += weight;
        for (std::size_t i = 0; i < width; ++i) {
          y[h * width + i] += weight * v[p][h / group * width + i];
        }
      }
      for (std::size_t i = 0; i < width; ++i) {
        y[h * width + i] /= total;
      }
    }
    return y;
  }

  void run_layer(std::vector<Vector>& x,
                 std::size_t index,
                 const std::string& path) {
    const model::LayerConfig& layer = c_.layers[index];
    std::vector<Vector> q;
    std::vector<Vector> k;
    std::vector<Vector> v;
    for (const Vector& token : x) {
      const Vector normed = norm(token, path + "input_layernorm.weight");
      q.push_back(linear(path + "self_attn.q_proj", normed));
      k.push_back(linear(path + "self_attn.k_proj", normed));
      v.push_back(linear(path + "self_attn.v_proj", normed));
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      add(x[t], linear(path + "self_attn.o_proj", attend(q, k, v, t, layer)));
      const Vector normed =
          norm(x[t], path + "post_attention_layernorm.weight");
      const std::string module = path + c_.mlp_module;
      add(x[t], layer.experts ? experts(module, normed) : mlp(module, normed));
    }
  }

  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] += y[i];
    }
  }

  TinyCheckpoint& w_;
  model::ModelConfig c_;
};

}  // namespace nibble::load
