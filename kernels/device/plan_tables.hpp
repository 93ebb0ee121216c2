#pragma once
// A plan's tables as one block of bytes: made on the host, copied to a device as it is, with the
// addresses it will have there.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/chunk_plan.hpp"
#include "kernels/device/pass_layout.hpp"

namespace gradvane::kernels::device {

/// What one launch covers of a plan.
struct LaunchRange {
  std::int64_t tensor_begin = 0;
  std::int64_t tensor_end = 0;
  std::int32_t block_begin = 0;
  std::int32_t block_end = 0;
};

class PlanTables {
 public:
  /// @param shapes, sites  one per tensor. Throws what ChunkPlan throws, and std::invalid_argument
  ///                       where their numbers differ or exceed 2^31 - 1.
  PlanTables(std::span<const TensorShape> shapes, std::span<const Site> sites);

  /// Device memory of one plan, the ring left out.
  [[nodiscard]] std::size_t bytes() const noexcept { return image_.size(); }
  /// The bytes to copy to the device, aligned to 16 there.
  [[nodiscard]] std::span<const std::byte> image() const noexcept { return image_; }
  /// The tables when the image lies at `base`; `ring` and `plan_id` are left for the caller.
  [[nodiscard]] PassTables at(std::byte* base) const noexcept;

  /// The launches of one read, at most `max_tensors` tensors each; at least one.
  [[nodiscard]] std::vector<LaunchRange> launches(std::int64_t max_tensors) const;
  [[nodiscard]] std::int64_t tensors() const noexcept { return tensors_; }

 private:
  struct Offsets {
    std::size_t state, shapes, starts, spans, sites, partials, arrived, stats, squares;
  };
  std::int64_t tensors_;
  int blocks_;
  Offsets offsets_{};
  std::vector<ChunkPosition> starts_;
  std::vector<std::byte> image_;
};

}  // namespace gradvane::kernels::device
