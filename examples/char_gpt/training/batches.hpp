#pragma once
// Tokens in memory to tensors on the device that trains.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace char_gpt {

struct Batch {
  at::Tensor tokens;   ///< int64 [batch, time]
  at::Tensor targets;  ///< the same, one token later
};

/// One sequence for each of `starts`: the `time` tokens from there, and those one later. Does not wait
/// for the device. Every start must leave time + 1 tokens.
[[nodiscard]] Batch make_batch(std::span<const std::uint8_t> tokens,
                               std::span<const std::int64_t> starts, std::int64_t time,
                               const c10::Device& device);

/// Sequences from anywhere in a text, without end. A generator of its own: torch's stays untouched, so
/// that dropout and batches do not depend on each other.
class RandomBatches {
 public:
  /// `tokens` must outlive this. Throws std::invalid_argument where they are no longer than `time`.
  RandomBatches(std::span<const std::uint8_t> tokens, std::int64_t batch, std::int64_t time,
                c10::Device device, std::uint64_t seed);

  [[nodiscard]] Batch next();

 private:
  std::span<const std::uint8_t> tokens_;
  std::int64_t time_;
  c10::Device device_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> starts_;
};

}  // namespace char_gpt
