#pragma once
// The memory and the events of one pass on a device. They are given back for the next pass, never freed:
// cudaFree and cudaFreeHost wait for everything the device does, which at the end of a run may be a
// collective that never ends, and torch frees nothing there either.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "kernels/device/cuda_handles.hpp"

namespace gradvane::kernels {

/// What a process holds stays within what its passes needed at one time, in size classes a quarter of a
/// power of two apart; what was kept for good comes on top.
class PassRoom {
 public:
  /// Within a DeviceSetUp of `device`. Takes what an earlier pass of these sizes gave back and the device
  /// is done with, or allocates. Throws CudaError.
  PassRoom(int device, std::size_t table_bytes, std::size_t ring_bytes);
  /// Calls nothing of CUDA: the device may hang, be lost, or be the parent's of a fork.
  ~PassRoom();
  PassRoom(const PassRoom&) = delete;  // gives back once
  PassRoom& operator=(const PassRoom&) = delete;

  /// No later pass gets it: something may write here that no event tells of.
  void keep_for_good() noexcept { is_kept_ = true; }

  [[nodiscard]] std::byte* tables() const noexcept;  ///< the device's
  [[nodiscard]] std::size_t table_bytes() const noexcept;
  [[nodiscard]] std::span<std::byte> ring() const noexcept;
  [[nodiscard]] std::byte* ring_on_device() const noexcept;
  /// Stands behind the last use of the memory, where there was one: for whoever gets it next.
  [[nodiscard]] cudaEvent_t last_use() const noexcept;
  [[nodiscard]] cudaEvent_t done() const noexcept;  ///< for whoever has it

 private:
  struct Block;
  class List;
  static List& given_back() noexcept;
  static List& kept() noexcept;
  static Block* take(int device, std::size_t table_bytes, std::size_t ring_bytes) noexcept;

  Block* block_;
  bool is_kept_ = false;
};

}  // namespace gradvane::kernels
