#pragma once
// The device's pass on the host: its own block program, tables and ring, with fibers for threads. All
// of the pass but the launch and the memory model.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device/block_program.hpp"
#include "kernels/device/plan_tables.hpp"
#include "kernels/device/scale_program.hpp"
#include "kernels/result_ring.hpp"
#include "tests/kernels/device/fiber_block.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels::test {

/// A fiber as block_program.hpp wants a thread. Blocks run one after the other, so plain memory will do.
class FiberLane {
 public:
  FiberLane(FiberBlock& fibers, int thread, int block, int grid)
      : fibers_(&fibers), thread_(thread), block_(block), grid_(grid) {}

  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int block() const { return block_; }
  [[nodiscard]] int grid() const { return grid_; }
  void sync() { fibers_->wait_for_block(); }
  void sync_warp() { (void)fibers_->exchange(0); }

  [[nodiscard]] std::uint32_t ballot(bool value) {
    const std::uint64_t* values = fibers_->exchange(value ? 1 : 0);
    std::uint32_t mask = 0;
    for (int lane = 0; lane < device::kWarp; ++lane)
      mask |= static_cast<std::uint32_t>(values[lane]) << lane;
    return mask;
  }
  [[nodiscard]] bool any(bool value) { return ballot(value) != 0; }
  template <class T>
  [[nodiscard]] T shuffle_down(T value, int distance) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(value));
    const std::uint64_t* values = fibers_->exchange(bits);
    const int from = thread_ % device::kWarp + distance;
    if (from < device::kWarp) std::memcpy(&value, &values[from], sizeof(value));
    return value;
  }

  void add(std::int64_t* to, std::int64_t value) { *to += value; }
  void raise(std::uint64_t* to, std::uint64_t value) { *to = std::max(*to, value); }
  [[nodiscard]] std::uint32_t arrive(std::uint32_t* counter) { return (*counter)++; }
  static void prefetch_group(const std::byte*, int) {}
  [[nodiscard]] static device::Vector load(const std::byte* at) {
    ++loads;
    return *reinterpret_cast<const device::Vector*>(at);  // aligned, or UBSan says so
  }
  [[nodiscard]] static device::Vector load_to_change(const std::byte* at) { return load(at); }
  static void store(std::byte* at, const device::Vector& vector) {
    *reinterpret_cast<device::Vector*>(at) = vector;
  }
  void store_host(std::uint64_t* to, std::uint64_t value) {
    std::atomic_ref(*to).store(value, std::memory_order_release);
  }
  void fence_host() {}

  static inline std::int64_t loads = 0;  ///< of vectors, by all lanes

 private:
  FiberBlock* fibers_;
  int thread_;
  int block_;
  int grid_;
};

struct DriveOptions {
  int grid = 3;                   ///< physical blocks
  std::int64_t per_launch = 480;  ///< tensors
  bool backward = false;          ///< blocks and threads take turns from the last one
  int ring_slots = 4;
};

class DrivenPass {
 public:
  DrivenPass(std::span<const TensorShape> shapes, std::span<const Site> sites,
             DriveOptions options);

  /// One read. data[i] as for CudaPass::enqueue.
  void read(std::span<const void* const> data, std::uint64_t token = 0);
  /// As CudaPass::clip.
  void clip(std::span<void* const> data, double max_norm);

  [[nodiscard]] const ResultRing& ring() const { return ring_; }
  [[nodiscard]] const device::PassTables& tables() const { return tables_; }
  [[nodiscard]] std::span<const TensorStats> stats() const {
    return {tables_.stats, static_cast<std::size_t>(tables_.plan.tensor_count)};
  }

 private:
  using Launch = device::Launch<device::kFewPointers>;
  void launch_all(Launch& launch, std::span<const void* const> data,
                  const std::function<void(int block)>& run_block);

  DriveOptions options_;
  std::vector<device::LaunchRange> launches_;
  std::vector<device::Vector> memory_;  ///< for its alignment
  device::PassTables tables_;
  ResultRing ring_;
  FiberBlock fibers_;
};

/// One tensor read alone.
TensorStats read_driven(const TensorData& tensor, DriveOptions options = {});

}  // namespace gradvane::kernels::test
