#pragma once
// Where the slots of a step's reads are.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace gradvane::collectors {

/// What the entries of a slot are. Slots are joined in this order: gradients decide which plan a step has.
enum class SlotRole : std::uint8_t { gradients, weights, loss, user };
inline constexpr std::size_t kSlotRoles = 4;

inline constexpr std::uint64_t kHostSource = 0;  ///< the ids of devices begin at 1
inline constexpr std::size_t kMaxDevices = 8;    ///< of one step; tensors on more are unsupported

/// One read enqueued on a device: its slot is the one in the source's ring that carries the token.
struct DeviceRead {
  std::uint64_t source = 0;  ///< 0: none
  std::uint64_t token = 0;
};

/// One read of a step, on the host or on a device.
struct SlotRead {
  SlotRole role = SlotRole::gradients;
  std::uint64_t source = kHostSource;
  std::uint64_t token = 0;  ///< of the host: the sequence number of the slot

  [[nodiscard]] bool is_on_host() const noexcept { return source == kHostSource; }
};

/// The reads of one step, by role. Trivially copyable.
class SlotReads {
 public:
  /// Replaces an earlier read of this role on the host.
  void set_on_host(SlotRole role, std::uint64_t sequence) noexcept {
    set({role, kHostSource, sequence});
  }
  /// Replaces earlier reads of this role on devices. At most kMaxDevices of gradients and weights, one of a
  /// loss and of custom metrics; what is more is left out.
  void set_on_devices(SlotRole role, std::span<const DeviceRead> reads) noexcept {
    remove(role, /*is_on_host=*/false);
    for (const DeviceRead& read : reads)
      if (read.source != kHostSource) insert({role, read.source, read.token});
  }

  /// Replaces an earlier read of its role on the host, or on devices.
  void set(const SlotRead& read) noexcept {
    remove(read.role, read.is_on_host());
    insert(read);
  }

  [[nodiscard]] bool has_on_devices(SlotRole role) const noexcept {
    return std::any_of(begin(), end(), [&](const SlotRead& read) {
      return read.role == role && !read.is_on_host();
    });
  }
  [[nodiscard]] const SlotRead* begin() const noexcept { return reads_.data(); }
  [[nodiscard]] const SlotRead* end() const noexcept { return reads_.data() + count_; }

 private:
  /// Gradients and weights on the host and on each device, a loss and custom metrics on the host and on one.
  static constexpr std::size_t kMost = 2 * (1 + kMaxDevices) + 2 * 2;

  void remove(SlotRole role, bool is_on_host) noexcept {
    SlotRead* const last = reads_.data() + count_;
    const SlotRead* const kept = std::remove_if(reads_.data(), last, [&](const SlotRead& read) {
      return read.role == role && read.is_on_host() == is_on_host;
    });
    count_ = static_cast<std::size_t>(kept - reads_.data());
  }
  void insert(const SlotRead& read) noexcept {
    if (count_ == kMost) return;
    SlotRead* const last = reads_.data() + count_++;
    SlotRead* const at =
        std::upper_bound(reads_.data(), last, read,
                         [](const SlotRead& a, const SlotRead& b) { return a.role < b.role; });
    std::move_backward(at, last, last + 1);
    *at = read;
  }

  std::size_t count_ = 0;
  std::array<SlotRead, kMost> reads_{};
};
static_assert(std::is_trivially_copyable_v<SlotReads>);

}  // namespace gradvane::collectors
