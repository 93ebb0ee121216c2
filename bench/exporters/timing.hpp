#pragma once
// How long something takes.
#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace gradvane::bench {

inline double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace gradvane::bench
