#include "examples/char_gpt/training/evaluation.hpp"

#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "examples/char_gpt/training/batches.hpp"
#include "examples/char_gpt/training/model.hpp"

namespace char_gpt {
namespace {

constexpr double kTemperature = 0.8;
constexpr std::int64_t kHeldOutCharacters = 65536;
constexpr std::int64_t kCharactersAtOnce = 8192;

/// Evaluation mode, and no autograd, while it lives.
class Evaluating {
 public:
  explicit Evaluating(Gpt& model) : model_(model), was_training_(model.is_training()) {
    model_.eval();
  }
  ~Evaluating() { model_.train(was_training_); }
  Evaluating(const Evaluating&) = delete;  // restores what one constructor saved
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  c10::AutoGradMode no_gradients_{false};
  Gpt& model_;
  bool was_training_;
};

/// Beginnings of sequences of `time` tokens with a target each, evenly spread over `tokens`.
std::vector<std::int64_t> spread_starts(std::int64_t tokens, std::int64_t time) {
  const std::int64_t fit = (tokens - 1) / time;
  const std::int64_t count = std::min(fit, std::max<std::int64_t>(1, kHeldOutCharacters / time));
  std::vector<std::int64_t> starts;
  starts.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) starts.push_back(i * fit / count * time);
  return starts;
}

/// An index drawn with the probabilities of `weights`, which add up to 1; the last one where rounding
/// leaves a rest.
std::size_t draw(std::span<const float> weights, std::mt19937_64& random) {
  double left = static_cast<double>(random() >> 11) * 0x1p-53;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= static_cast<double>(weights[i]);
    if (left < 0) return i;
  }
  return weights.size() - 1;
}

}  // namespace

double held_out_loss(Gpt& model, const Text& text, const c10::Device& device) {
  const std::int64_t time = model.context();
  if (std::ssize(text.held_out) <= time) {
    throw std::invalid_argument("the held-out tenth of the text has " +
                                std::to_string(text.held_out.size()) +
                                " characters, too few for --context " + std::to_string(time) +
                                "; use more --data or less --context");
  }
  const Evaluating evaluating(model);
  const auto starts = spread_starts(std::ssize(text.held_out), time);
  const auto at_once =
      static_cast<std::size_t>(std::max<std::int64_t>(1, kCharactersAtOnce / time));
  auto sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (std::size_t i = 0; i < starts.size(); i += at_once) {
    const auto part = std::span(starts).subspan(i, std::min(at_once, starts.size() - i));
    const auto batch = make_batch(text.held_out, part, time, device);
    sum +=
        model.loss(batch.tokens, batch.targets).to(at::kDouble) * static_cast<double>(part.size());
  }
  return sum.item<double>() / static_cast<double>(starts.size());
}

std::string sample(Gpt& model, const Text& text, std::int64_t length, std::uint64_t seed,
                   const c10::Device& device) {
  const Evaluating evaluating(model);
  std::mt19937_64 random(seed);
  const auto newline = text.vocabulary.find('\n');
  std::vector<std::int64_t> tokens = {
      newline == std::string::npos ? 0 : static_cast<std::int64_t>(newline)};
  std::string written;
  while (std::ssize(written) < length) {
    const auto seen = std::min<std::int64_t>(std::ssize(tokens), model.context());
    const auto last =
        at::tensor(at::ArrayRef(tokens).slice(tokens.size() - static_cast<std::size_t>(seen)),
                   at::TensorOptions().dtype(at::kLong).device(device));
    // Rows of the embedding beyond the text's characters mean nothing that could be printed.
    const auto scores = model.logits(last.unsqueeze(0))
                            .select(1, seen - 1)
                            .squeeze(0)
                            .narrow(0, 0, std::ssize(text.vocabulary))
                            .to(at::kFloat);
    const auto weights = at::softmax(scores / kTemperature, 0).cpu();
    const std::span chances(weights.const_data_ptr<float>(), text.vocabulary.size());
    if (!std::isfinite(chances[0])) break;
    const auto token = draw(chances, random);
    tokens.push_back(static_cast<std::int64_t>(token));
    written.push_back(text.vocabulary[token]);
  }
  return written;
}

std::string weights_checksum(const Gpt& model) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const auto& parameter : model.parameters()) {
    const auto host = parameter.detach().cpu().contiguous();
    const std::span bytes(static_cast<const std::uint8_t*>(host.const_data_ptr()), host.nbytes());
    for (const auto byte : bytes) hash = (hash ^ byte) * 0x100000001b3U;
  }
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

}  // namespace char_gpt
