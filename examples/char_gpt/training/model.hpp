#pragma once
// A GPT: token and position embeddings, pre-norm transformer blocks, and an output layer that shares
// its weights with the token embedding.
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace torch::nn {
class EmbeddingImpl;
class LayerNormImpl;
}  // namespace torch::nn

namespace char_gpt {

struct GptShape {
  std::int64_t vocabulary;  ///< rows of the token embedding
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t width;
  std::int64_t context;  ///< longest sequence
  double dropout = 0.0;
};

class Block;

/// Runs under bf16 autocast on CUDA, and in the type of the weights on the CPU.
class Gpt : public torch::nn::Module {
 public:
  /// Weights are drawn from torch's generator: call torch::manual_seed before.
  /// Throws std::invalid_argument where the heads do not divide the width.
  explicit Gpt(const GptShape& shape);
  ~Gpt() override;

  /// int64 tokens [batch, time] to the scores of the next token [batch, time, vocabulary].
  [[nodiscard]] at::Tensor logits(const at::Tensor& tokens);

  /// Mean cross-entropy, in nats, of `targets` [batch, time]: a 0-dim fp32 tensor.
  [[nodiscard]] at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets);

  [[nodiscard]] std::int64_t context() const { return context_; }
  [[nodiscard]] std::int64_t parameter_count() const;

 private:
  void initialise();

  std::int64_t context_;
  double dropout_;
  std::shared_ptr<torch::nn::EmbeddingImpl> token_embedding_;
  std::shared_ptr<torch::nn::EmbeddingImpl> position_embedding_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<torch::nn::LayerNormImpl> final_norm_;
};

}  // namespace char_gpt
