#include "detectors/window.hpp"

#include <algorithm>
#include <cmath>

namespace gradvane::detectors {

void Window::add(double value) noexcept {
  if (values_.size() < capacity_) {
    values_.push_back(value);  // within what was reserved
    return;
  }
  values_[next_] = value;
  next_ = (next_ + 1) % capacity_;
}

void Window::clear() noexcept {
  values_.clear();
  next_ = 0;
}

double Window::mean() const noexcept {
  if (values_.empty()) return 0;
  // Each divided first: losses near the top of the range would overflow as a sum.
  const double count = static_cast<double>(values_.size());
  double mean = 0;
  for (const double value : values_) mean += value / count;
  return mean;
}

double Window::deviation() const noexcept {
  if (values_.empty()) return 0;
  const double center = mean();
  double largest = 0;
  for (const double value : values_) largest = std::max(largest, std::abs(value - center));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = 0;
  for (const double value : values_) {
    const double scaled = (value - center) / largest;
    sum += scaled * scaled;
  }
  return largest * std::sqrt(sum / static_cast<double>(values_.size()));
}

double Window::median() const {
  if (values_.empty()) return 0;
  sorted_ = values_;
  const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>(sorted_.size() / 2);
  std::nth_element(sorted_.begin(), middle, sorted_.end());
  if (sorted_.size() % 2 == 1) return *middle;
  return *std::max_element(sorted_.begin(), middle) / 2 + *middle / 2;
}

}  // namespace gradvane::detectors
