#pragma once
// A wait that ends: for what another thread is about to finish, where that may also hang for good.
#include <chrono>
#include <thread>

namespace gradvane::collectors {

/// Asks `done` until it says true, for a second at most. Whether it did.
template <typename Done>
bool within_a_second(Done done) {
  constexpr auto kNap = std::chrono::milliseconds(1);
  constexpr int kNaps = 1000;
  for (int i = 0; i < kNaps; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(kNap);
  }
  return done();
}

}  // namespace gradvane::collectors
