#include "examples/char_gpt/training/batches.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace char_gpt {

Batch make_batch(std::span<const std::uint8_t> tokens, std::span<const std::int64_t> starts,
                 std::int64_t time, const c10::Device& device) {
  // Pinned memory and an asynchronous copy: from pageable memory the host would wait for the copy.
  // The caching allocator keeps the pinned block until the copy is over.
  const auto options = at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda());
  const auto host = at::empty({static_cast<std::int64_t>(starts.size()), time + 1}, options);
  auto* out = host.mutable_data_ptr<std::int64_t>();
  for (const auto start : starts) {
    const auto sequence =
        tokens.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(time) + 1);
    out = std::copy(sequence.begin(), sequence.end(), out);
  }
  const auto moved = host.to(device, /*non_blocking=*/true);
  return {.tokens = moved.narrow(1, 0, time), .targets = moved.narrow(1, 1, time)};
}

RandomBatches::RandomBatches(std::span<const std::uint8_t> tokens, std::int64_t batch,
                             std::int64_t time, c10::Device device, std::uint64_t seed)
    : tokens_(tokens),
      time_(time),
      device_(device),
      random_(seed),
      starts_(static_cast<std::size_t>(batch)) {
  if (std::ssize(tokens) <= time) {
    throw std::invalid_argument("the text has " + std::to_string(tokens.size()) +
                                " characters to train on, too few for --context " +
                                std::to_string(time) + "; use more --data or less --context");
  }
}

Batch RandomBatches::next() {
  const auto choices = static_cast<std::uint64_t>(std::ssize(tokens_) - time_);
  // The remainder favours the first starts by less than one in 2^40: no text is that long.
  for (auto& start : starts_) start = static_cast<std::int64_t>(random_() % choices);
  return make_batch(tokens_, starts_, time_, device_);
}

}  // namespace char_gpt
