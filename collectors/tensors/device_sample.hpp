#pragma once
// UpdateSample's half on CUDA devices: the sample stays there, and so does what has become of it.
#include <cstdint>
#include <memory>
#include <span>

#include "collectors/tensors/tensor.hpp"

namespace gradvane::collectors {

/// At most UpdateSample::kMaxElements numbers a device, 16 bytes each. Training thread only; nothing
/// after resize() allocates, throws or waits. In a build without CUDA nothing is sampled.
class DeviceSample {
 public:
  DeviceSample();
  ~DeviceSample();
  DeviceSample(const DeviceSample&) = delete;  // devices hold its addresses
  DeviceSample& operator=(const DeviceSample&) = delete;

  /// Room for the samples of those `params` that are on a device, at most `per_param` elements of each.
  /// Allocates; a device without memory is left out.
  void resize(std::span<const Tensor> params, std::int64_t per_param);

  /// Keeps the sample as it is before the update, on the current streams.
  void keep(std::span<const Tensor> params) noexcept;
  /// Works out how it has changed, on the current streams.
  void difference(std::span<const Tensor> params) noexcept;
  /// Δw over the sample of parameter i, fp64, on its device; valid until the next difference() in stream
  /// order. Undefined where it was not kept, or changed its size or dtype since.
  [[nodiscard]] Tensor changes(std::size_t i) const noexcept;
  /// The same tensor, whatever is in it: as changes() will be where the parameter is kept.
  [[nodiscard]] Tensor room_for_changes(std::size_t i) const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradvane::collectors
