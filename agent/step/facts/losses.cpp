#include "agent/step/facts/losses.hpp"

#include <algorithm>
#include <cmath>

#include "collectors/tensors/tensor_view.hpp"

namespace gradvane::agent {

void Losses::add(const collectors::Tensor& loss, From from,
                 const collectors::DeviceReads& reads) noexcept try {
  if (from == From::backward && any() && from_ == From::loop) return;
  if (from == From::loop && from_ == From::backward) clear();
  if (reads.takes(loss) && collectors::facts_of(loss).numel == 1) {
    // A copy at once: the program may go on to divide its loss in place.
    collectors::Tensor value = collectors::scalar_copy(loss);
    device_sum_ =
        device_count_ == 0 ? std::move(value) : collectors::scalar_sum(device_sum_, value);
    ++device_count_;
    from_ = from;
    return;
  }
  const auto value = collectors::scalar_value(loss);
  if (!value) return;
  host_sum_ += *value;
  ++host_count_;
  if (first_bad_ == 0 && !std::isfinite(*value)) first_bad_ = host_count_;
  from_ = from;
} catch (...) {  // no memory on the device: the step's loss is not measured
  device_count_ = 0;
}

void Losses::clear() noexcept {
  from_ = From::backward;
  host_sum_ = 0;
  host_count_ = 0;
  first_bad_ = 0;
  device_sum_.reset();
  device_count_ = 0;
}

double Losses::host_value() const noexcept {
  return from_ == From::loop ? host_sum_ / host_count_ : host_sum_;
}

std::int32_t Losses::device_divisor() const noexcept {
  return from_ == From::loop ? std::max(device_count_, 1) : 1;
}

}  // namespace gradvane::agent
