#pragma once
// A block of the device's threads on one host thread: each is a fiber that runs until it has to wait
// for the others. The order in which they run is chosen, so that a missing barrier shows.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gradvane::kernels::test {

class FiberBlock {
 public:
  /// In which order the fibers that can run are run.
  enum class Order : std::uint8_t { forward, backward };

  FiberBlock(int threads, Order order);
  ~FiberBlock();
  FiberBlock(const FiberBlock&) = delete;  // fibers hold its address
  FiberBlock& operator=(const FiberBlock&) = delete;

  /// Runs body(thread) in every fiber until all have returned. Throws std::logic_error where threads
  /// wait for each other at different places.
  void run(const std::function<void(int)>& body);

  // Within a fiber.
  void wait_for_block();
  /// Returns what every lane of the warp passed, in the order of lanes.
  [[nodiscard]] const std::uint64_t* exchange(std::uint64_t value);

 private:
  static constexpr int kWarp = 32;
  enum class Wait : std::uint8_t { nothing, warp, block, ended };
  struct Fiber;

  [[nodiscard]] std::byte* stack_of(int thread);
  static void enter();
  void resume(int thread);
  void yield(Wait wait);
  bool step_warp(int warp);

  Order order_;
  std::unique_ptr<std::byte[]> stacks_;  ///< of all fibers, one behind the other
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<Fiber> scheduler_;
  std::vector<std::uint64_t> exchanged_[2];  ///< by turns: a lane may be at the next one already
  std::function<void(int)> body_;
  int running_ = -1;
  static thread_local FiberBlock* entering;
};

}  // namespace gradvane::kernels::test
