#pragma once
// A ring of fixed-size slots between one producer that never waits and any number of readers, each
// slot a seqlock. The producer never looks at a reader: a full ring overwrites its oldest slot, and
// the reader learns how many it missed from the sequence numbers.
//
// The memory, so that a device can be the producer. Little-endian 64-bit words, the whole aligned to
// 128 bytes (kAlignment):
//
//   offset  size  RingHeader
//        0     8  magic "GVRING01"
//        8     8  slots
//       16     8  payload_bytes   of one slot, a multiple of 8
//       24     8  stride_bytes    from one slot to the next, a multiple of 128
//       32    32  0
//       64     8  latest          the highest finished sequence number, 0 before the first
//       72    56  0
//      128        slots x stride_bytes:
//
//   offset  size  slot; sequence s lives in slot s % slots
//        0     8  begin           s, stored before the first payload word changes
//        8     8  end             s, stored after the last one
//       16     .  payload
//
// Producer, for s = 1, 2, 3, ...: begin = s; payload words, each a release store; end = s (release);
// latest = s (release). Reader: end (acquire) must be s; payload words, each an acquire load; begin
// must still be s. A word of a later write makes that write's begin visible, so the check cannot
// miss it. A device has the payload in order by fences of system scope instead (ring_writer.hpp).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace gradvane::kernels {

struct RingHeader {
  static constexpr std::uint64_t kMagic = 0x3130474e49525647;  // "GVRING01"
  std::uint64_t magic = kMagic;
  std::uint64_t slots = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t stride_bytes = 0;
  std::uint64_t reserved0[4] = {};
  std::uint64_t latest = 0;
  std::uint64_t reserved1[7] = {};
};
static_assert(std::is_standard_layout_v<RingHeader> && sizeof(RingHeader) == 128);
static_assert(offsetof(RingHeader, slots) == 8 && offsetof(RingHeader, payload_bytes) == 16);
static_assert(offsetof(RingHeader, stride_bytes) == 24 && offsetof(RingHeader, latest) == 64);

struct SlotLock {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
static_assert(std::is_standard_layout_v<SlotLock> && sizeof(SlotLock) == 16);
static_assert(offsetof(SlotLock, begin) == 0 && offsetof(SlotLock, end) == 8);

enum class SlotStatus : std::uint8_t {
  ok,
  not_yet,     ///< this sequence number has not been finished
  overwritten  ///< it was, and a later one has taken its slot
};

/// One thread (or device) writes, any number of threads read; neither waits for the other. Nothing is
/// allocated after construction.
class SlotRing {
 public:
  static constexpr std::size_t kAlignment = 128;

  /// Owns its memory. Throws std::invalid_argument if either number is not positive.
  SlotRing(int slots, std::size_t payload_bytes);
  /// Over memory of the caller, which outlives the ring: at least bytes_needed(), aligned to
  /// kAlignment (else std::invalid_argument). Makes the ring empty.
  SlotRing(int slots, std::size_t payload_bytes, std::span<std::byte> memory);
  SlotRing(const SlotRing&) = delete;  // readers and the producer hold its address
  SlotRing& operator=(const SlotRing&) = delete;

  [[nodiscard]] static std::size_t bytes_needed(int slots, std::size_t payload_bytes) noexcept;

  [[nodiscard]] std::uint64_t slots() const noexcept { return slots_; }
  [[nodiscard]] std::size_t payload_bytes() const noexcept { return payload_bytes_; }
  [[nodiscard]] std::size_t stride_bytes() const noexcept { return stride_bytes_; }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }

  /// The highest finished sequence number, 0 before the first.
  [[nodiscard]] std::uint64_t latest() const noexcept;
  /// The lowest that may still be there, 1 before the first.
  [[nodiscard]] std::uint64_t oldest() const noexcept;

  /// Producer. Each part is a trivially copyable object or a span of them, and starts at the next
  /// multiple of 8 of the payload; what is left of the slot keeps its old bytes. Sequence numbers
  /// count up by one from any positive number. False, with nothing written, if the parts do not fit
  /// or the number is 0.
  template <typename... Parts>
  bool write(std::uint64_t sequence, const Parts&... parts) noexcept {
    const std::span<const std::byte> spans[] = {bytes_of(parts)...};
    return write_spans(sequence, spans);
  }

  /// Producer, for parts that are not side by side: begin(), any number of put(), end(), all with one sequence number, as
  /// write() takes it. `offset` is a multiple of 8; a part at another one, or that does not fit, is left out.
  void begin(std::uint64_t sequence) noexcept;
  void put(std::uint64_t sequence, std::size_t offset, std::span<const std::byte> bytes) noexcept;
  void end(std::uint64_t sequence) noexcept;

  /// Reader. Copies out.size() bytes of the payload from `offset`, a multiple of 8. `out` is whole
  /// only with ok. Reading past the payload's end answers not_yet.
  [[nodiscard]] SlotStatus read(std::uint64_t sequence, std::span<std::byte> out,
                                std::size_t offset = 0) const noexcept;
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] SlotStatus read(std::uint64_t sequence, T& out) const noexcept {
    return read(sequence, std::as_writable_bytes(std::span(&out, 1)));
  }

 private:
  template <typename T>
  static std::span<const std::byte> bytes_of(const T& part) noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    return std::as_bytes(std::span(&part, 1));
  }
  template <typename T>
  static std::span<const std::byte> bytes_of(const std::span<T>& part) noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    return std::as_bytes(part);
  }

  bool write_spans(std::uint64_t sequence,
                   std::span<const std::span<const std::byte>> parts) noexcept;
  [[nodiscard]] std::uint64_t* words_of(std::uint64_t sequence) const noexcept;

  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> owned_;  // null over memory of the caller
  std::span<std::byte> memory_;
  std::uint64_t slots_ = 0;
  std::size_t payload_bytes_ = 0;
  std::size_t stride_bytes_ = 0;
};

}  // namespace gradvane::kernels
