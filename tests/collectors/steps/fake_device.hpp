#pragma once
// A device for the worker's side: a ring whose slots a test publishes when it likes.
#include <cstdint>
#include <memory>
#include <vector>

#include "collectors/steps/device_source.hpp"
#include "collectors/steps/step_facts.hpp"
#include "kernels/result_ring.hpp"

namespace gradvane::collectors::test {

class FakeDevice {
 public:
  explicit FakeDevice(std::uint64_t id, std::int64_t entries, int slots = 8)
      : ring_(std::make_shared<kernels::ResultRing>(slots, entries)),
        producer_(*ring_),
        source_(std::make_shared<DeviceSource>()) {
    source_->id = id;
    source_->ring = ring_;
    source_->orders.resize(static_cast<std::size_t>(entries));
  }

  [[nodiscard]] std::shared_ptr<DeviceSource> source() const { return source_; }
  [[nodiscard]] DeviceRead read(std::uint64_t token) const { return {source_->id, token}; }

  /// A finished read of gradients.
  void publish(std::uint64_t plan, std::uint64_t token,
               const std::vector<kernels::TensorStats>& stats) {
    const std::vector<kernels::Site> sites(stats.size(), kernels::Site::grad);
    producer_.publish(plan, sites, stats, token);
  }

 private:
  std::shared_ptr<kernels::ResultRing> ring_;
  kernels::RingProducer producer_;
  std::shared_ptr<DeviceSource> source_;
};

/// One element of this value; with `nan`, one NaN beside it.
inline kernels::TensorStats stats_of(double value, bool nan = false) {
  kernels::TensorStats stats;
  stats.numel = nan ? 2 : 1;
  stats.sum = stats.abs_max = stats.abs_min_nonzero = value;
  stats.sum_sq = value * value;
  if (nan) {
    stats.nan = 1;
    stats.first_nonfinite = 1;
    stats.first_kind = 0;
  }
  return stats;
}

}  // namespace gradvane::collectors::test
