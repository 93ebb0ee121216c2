#include "kernels/device/pass_room.hpp"

#include <atomic>
#include <bit>
#include <memory>
#include <utility>

namespace gradvane::kernels {
namespace {

/// Models of about the same size share their rooms.
std::size_t size_class(std::size_t bytes) noexcept {
  constexpr std::size_t kLeast = 4096;
  if (bytes <= kLeast) return kLeast;
  const std::size_t unit = std::bit_floor(bytes) / 4;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

struct PassRoom::Block {
  // The device's memory comes first: where there is none, no page-locked memory has to be freed again.
  Block(int on_device, std::size_t table_bytes, std::size_t ring_bytes)
      : device(on_device), tables(table_bytes), ring(ring_bytes) {}

  int device;
  DeviceMemory tables;
  MappedMemory ring;
  Event last_use;
  Event done;
  Block* next = nullptr;
};

/// Without a lock: a fork may happen at any time, and the child gives back too.
class PassRoom::List {
 public:
  void push(Block* block) noexcept {
    block->next = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(block->next, block, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
  }
  /// All there are, by `next`. Who asks meanwhile finds nothing, and allocates.
  Block* take_all() noexcept { return head_.exchange(nullptr, std::memory_order_acquire); }

 private:
  std::atomic<Block*> head_ = nullptr;
};

PassRoom::List& PassRoom::given_back() noexcept {
  static constinit List list;
  return list;
}

PassRoom::List& PassRoom::kept() noexcept {
  static constinit List list;
  return list;
}

PassRoom::Block* PassRoom::take(int device, std::size_t table_bytes,
                                std::size_t ring_bytes) noexcept {
  const OwnErrors errors;
  Block* found = nullptr;
  for (Block* block = given_back().take_all(); block != nullptr;) {
    Block* next = block->next;
    const bool fits = found == nullptr && block->device == device &&
                      block->tables.size() == table_bytes &&
                      block->ring.host().size() == ring_bytes;
    // A block that is in use, or of a device that is lost, stays where it is.
    if (fits && errors.settle(cudaEventQuery(block->last_use.get())) == cudaSuccess)
      found = block;
    else
      given_back().push(block);
    block = next;
  }
  return found;
}

PassRoom::PassRoom(int device, std::size_t table_bytes, std::size_t ring_bytes) {
  table_bytes = size_class(table_bytes);
  ring_bytes = size_class(ring_bytes);
  block_ = take(device, table_bytes, ring_bytes);
  if (block_ == nullptr)
    block_ = std::make_unique<Block>(device, table_bytes, ring_bytes).release();
}

PassRoom::~PassRoom() { (is_kept_ ? kept() : given_back()).push(block_); }

std::byte* PassRoom::tables() const noexcept { return block_->tables.data(); }
std::size_t PassRoom::table_bytes() const noexcept { return block_->tables.size(); }
std::span<std::byte> PassRoom::ring() const noexcept { return block_->ring.host(); }
std::byte* PassRoom::ring_on_device() const noexcept { return block_->ring.device(); }
cudaEvent_t PassRoom::last_use() const noexcept { return block_->last_use.get(); }
cudaEvent_t PassRoom::done() const noexcept { return block_->done.get(); }

}  // namespace gradvane::kernels
