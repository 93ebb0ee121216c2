#pragma once
// The last accepted values of a series, for rules that compare a value with its own history.
#include <cstddef>
#include <vector>

namespace gradvane::detectors {

/// Keeps the last `capacity` values; its memory is taken at once. Not for non-finite values.
class Window {
 public:
  explicit Window(std::size_t capacity) : capacity_(capacity) { values_.reserve(capacity); }

  void add(double value) noexcept;
  void clear() noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] bool is_full() const noexcept { return values_.size() == capacity_; }
  /// 0 where it is empty, as are those below.
  [[nodiscard]] double mean() const noexcept;
  /// Population standard deviation.
  [[nodiscard]] double deviation() const noexcept;
  [[nodiscard]] double median() const;

 private:
  std::size_t capacity_;
  std::size_t next_ = 0;
  std::vector<double> values_;
  mutable std::vector<double> sorted_;  ///< reused
};

}  // namespace gradvane::detectors
