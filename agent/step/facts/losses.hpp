#pragma once
// The losses of one optimizer's step, summed where they are.
#include <cstdint>

#include "collectors/tensors/device_reads.hpp"

namespace gradvane::agent {

/// Losses that the loop passes are averaged. Those seen as roots of backward passes are added up:
/// the gradients are those of their sum, and a loop that accumulates has divided them already. A
/// loss that the loop passes overrides all that were seen. Training thread only; never waits.
class Losses {
 public:
  enum class From : std::uint8_t { loop, backward };

  /// Adds `loss`, of one element, on a CPU or on a device that `reads` takes. Anything else is left
  /// out.
  void add(const collectors::Tensor& loss, From from,
           const collectors::DeviceReads& reads) noexcept;
  void clear() noexcept;

  [[nodiscard]] bool any() const noexcept { return on_host() || on_device(); }
  [[nodiscard]] bool on_host() const noexcept { return host_count_ > 0; }
  [[nodiscard]] bool on_device() const noexcept { return device_count_ > 0; }
  /// The first micro-step whose loss was not finite, from 1; 0: none, or they are on a device.
  [[nodiscard]] std::int32_t first_bad() const noexcept { return first_bad_; }
  /// The step's loss, from the losses on a CPU.
  [[nodiscard]] double host_value() const noexcept;
  /// The sum of those on a device, 0-dim fp64, and what to divide it by.
  [[nodiscard]] const collectors::Tensor& device_sum() const noexcept { return device_sum_; }
  [[nodiscard]] std::int32_t device_divisor() const noexcept;

 private:
  From from_ = From::backward;
  double host_sum_ = 0;
  std::int32_t host_count_ = 0;
  std::int32_t first_bad_ = 0;
  collectors::Tensor device_sum_;
  std::int32_t device_count_ = 0;
};

}  // namespace gradvane::agent
