// The stand-in for a device's threads must find what it is there to find.
#include "tests/kernels/device/fiber_block.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace gradvane::kernels::test {
namespace {

using Order = FiberBlock::Order;

/// Every thread adds what its neighbour wrote; with a barrier between, or without.
int sum_of_neighbours(Order order, bool with_barrier) {
  constexpr int kFibers = 64;
  FiberBlock block(kFibers, order);
  std::vector<int> written(kFibers);
  std::vector<int> seen(kFibers);
  block.run([&](int thread) {
    const auto me = static_cast<std::size_t>(thread);
    written[me] = 1;
    if (with_barrier) block.wait_for_block();
    seen[me] = written[(me + 1) % kFibers];
  });
  return std::accumulate(seen.begin(), seen.end(), 0);
}

TEST(FiberBlock, ThreadsSeeWhatOthersWroteBeforeABarrier) {
  EXPECT_EQ(sum_of_neighbours(Order::forward, true), 64);
  EXPECT_EQ(sum_of_neighbours(Order::backward, true), 64);
}

TEST(FiberBlock, AMissingBarrierShowsInOneOrderAtLeast) {
  EXPECT_LT(
      std::min(sum_of_neighbours(Order::forward, false), sum_of_neighbours(Order::backward, false)),
      64);
}

TEST(FiberBlock, AWarpExchangesWhatItsLanesPass) {
  FiberBlock block(64, Order::backward);
  std::vector<std::uint64_t> sums(64);
  block.run([&](int thread) {
    for (std::uint64_t round = 0; round < 3; ++round) {
      const std::uint64_t* values = block.exchange(static_cast<std::uint64_t>(thread) + round);
      sums[static_cast<std::size_t>(thread)] +=
          std::accumulate(values, values + 32, std::uint64_t{0});
    }
  });
  for (std::size_t thread = 0; thread < 64; ++thread) {
    const std::uint64_t lanes = thread < 32 ? 496 : 496 + 1024;
    EXPECT_EQ(sums[thread], 3 * lanes + 32 * (0 + 1 + 2));
  }
}

TEST(FiberBlock, ThreadsThatWaitAtDifferentPlacesAreAnError) {
  FiberBlock block(32, Order::forward);
  EXPECT_THROW(block.run([&](int thread) {
    if (thread == 0) {
      block.wait_for_block();
    } else {
      (void)block.exchange(0);
    }
  }),
               std::logic_error);
}

}  // namespace
}  // namespace gradvane::kernels::test
