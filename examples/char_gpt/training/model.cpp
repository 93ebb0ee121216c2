#include "examples/char_gpt/training/model.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace char_gpt {
namespace {

/// bf16 autocast while it lives, on CUDA; nothing elsewhere.
class Autocast {
 public:
  explicit Autocast(const at::Device& device) : on_(device.is_cuda()) {
    if (!on_) return;
    was_enabled_ = at::autocast::is_autocast_enabled(at::kCUDA);
    old_dtype_ = at::autocast::get_autocast_dtype(at::kCUDA);
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!on_) return;
    // The bf16 copies of the weights are out of date as soon as the optimizer steps.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, was_enabled_);
    at::autocast::set_autocast_dtype(at::kCUDA, old_dtype_);
  }
  Autocast(const Autocast&) = delete;  // restores what one constructor saved
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  bool was_enabled_ = false;
  at::ScalarType old_dtype_ = at::kBFloat16;
};

class Attention : public torch::nn::Module {
 public:
  explicit Attention(const GptShape& shape) : heads_(shape.heads), dropout_(shape.dropout) {
    qkv_ = register_module("qkv", torch::nn::Linear(shape.width, 3 * shape.width));
    output_ = register_module("output", torch::nn::Linear(shape.width, shape.width));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto batch = x.size(0), time = x.size(1), width = x.size(2);
    // [batch, time, 3, heads, width / heads] to three times [batch, heads, time, width / heads].
    const auto qkv =
        qkv_->forward(x).view({batch, time, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(
        qkv.select(0, 0), qkv.select(0, 1), qkv.select(0, 2), /*attn_mask=*/{},
        is_training() ? dropout_ : 0.0, /*is_causal=*/true);
    const auto joined = mixed.transpose(1, 2).reshape({batch, time, width});
    return at::dropout(output_->forward(joined), dropout_, is_training());
  }

 private:
  std::int64_t heads_;
  double dropout_;
  torch::nn::Linear qkv_{nullptr};
  torch::nn::Linear output_{nullptr};
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const GptShape& shape) : dropout_(shape.dropout) {
    input_ = register_module("input", torch::nn::Linear(shape.width, 4 * shape.width));
    output_ = register_module("output", torch::nn::Linear(4 * shape.width, shape.width));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto hidden = at::gelu(input_->forward(x), "tanh");
    return at::dropout(output_->forward(hidden), dropout_, is_training());
  }

 private:
  double dropout_;
  torch::nn::Linear input_{nullptr};
  torch::nn::Linear output_{nullptr};
};

torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

class Block : public torch::nn::Module {
 public:
  explicit Block(const GptShape& shape) {
    attention_norm_ = register_module("attention_norm", layer_norm(shape.width));
    attention_ = register_module("attention", std::make_shared<Attention>(shape));
    mlp_norm_ = register_module("mlp_norm", layer_norm(shape.width));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(shape));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto mixed = x + attention_->forward(attention_norm_->forward(x));
    return mixed + mlp_->forward(mlp_norm_->forward(mixed));
  }

 private:
  torch::nn::LayerNorm attention_norm_{nullptr};
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm mlp_norm_{nullptr};
  std::shared_ptr<Mlp> mlp_;
};

Gpt::Gpt(const GptShape& shape) : context_(shape.context), dropout_(shape.dropout) {
  if (shape.heads < 1 || shape.width % shape.heads != 0) {
    throw std::invalid_argument("width " + std::to_string(shape.width) +
                                " is no multiple of the heads, " + std::to_string(shape.heads));
  }
  token_embedding_ = register_module(
      "token_embedding", std::make_shared<torch::nn::EmbeddingImpl>(shape.vocabulary, shape.width));
  position_embedding_ = register_module(
      "position_embedding", std::make_shared<torch::nn::EmbeddingImpl>(shape.context, shape.width));
  // A plain module holds the blocks, so that they are named blocks.0, blocks.1, ...
  const auto blocks = register_module("blocks", std::make_shared<torch::nn::Module>("Blocks"));
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    blocks_.push_back(blocks->register_module(std::to_string(i), std::make_shared<Block>(shape)));
  }
  final_norm_ = register_module("final_norm", layer_norm(shape.width).ptr());
  initialise();
}

Gpt::~Gpt() = default;

void Gpt::initialise() {
  const c10::AutoGradMode no_gradients(false);
  // GPT-2's: what is added to the residual stream starts smaller the more blocks add to it.
  constexpr double kSpread = 0.02;
  const double residual_spread = kSpread / std::sqrt(2.0 * static_cast<double>(blocks_.size()));
  for (auto& item : named_parameters()) {
    if (ends_with(item.key(), "bias")) {
      item.value().zero_();
    } else if (item.value().dim() >= 2) {
      item.value().normal_(0.0, ends_with(item.key(), "output.weight") ? residual_spread : kSpread);
    }
  }
}

at::Tensor Gpt::logits(const at::Tensor& tokens) {
  const Autocast autocast(tokens.device());
  const auto positions = at::arange(tokens.size(1), tokens.options());
  auto x = token_embedding_->forward(tokens) + position_embedding_->forward(positions);
  x = at::dropout(x, dropout_, is_training());
  for (const auto& block : blocks_) x = block->forward(x);
  return at::linear(final_norm_->forward(x), token_embedding_->weight);
}

at::Tensor Gpt::loss(const at::Tensor& tokens, const at::Tensor& targets) {
  const Autocast autocast(tokens.device());
  const auto scores = logits(tokens);
  return at::cross_entropy_loss(scores.flatten(0, 1), targets.flatten());
}

std::int64_t Gpt::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

}  // namespace char_gpt
