#pragma once
// What torch's caching allocator holds on the CUDA devices of this process.
#include <cstdint>
#include <optional>

namespace gradvane::collectors {

/// All devices together.
struct DeviceMemoryUse {
  std::int64_t allocated_bytes = 0;  ///< held by tensors
  std::int64_t reserved_bytes = 0;   ///< held by the allocator
  /// The most that tensors held at a time on each device, since the process began or the program reset
  /// torch's peak. Gradvane resets nothing: torch.cuda.max_memory_allocated() is the program's.
  std::int64_t peak_bytes = 0;
  /// Allocations that succeeded only after the allocator gave its cached blocks back to the device.
  std::int64_t allocation_retries = 0;
  std::int64_t out_of_memory = 0;  ///< allocations that failed
  /// What the allocator may take of the devices that it has used: all of it, or the fraction that the
  /// program allowed. Other processes may have a part of it. 0: it has used none.
  std::int64_t limit_bytes = 0;
};

/// Takes the allocator's lock for a moment and waits for no device: training thread only. Absent if
/// torch has not used a device yet, in a build without CUDA, and with another allocator.
[[nodiscard]] std::optional<DeviceMemoryUse> device_memory_use() noexcept;

/// A count of another library that its user may set back to 0, as torch's: the total goes on. What was
/// counted between the last look and the reset is lost.
class KeptCount {
 public:
  /// @param now  the count as it is
  std::int64_t total(std::int64_t now) noexcept {
    total_ += now < last_ ? now : now - last_;
    last_ = now;
    return total_;
  }

 private:
  std::int64_t last_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace gradvane::collectors
