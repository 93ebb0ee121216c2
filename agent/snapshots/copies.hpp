#pragma once
// Copies between living tensors and the host, in an order that holds on a device without the host waiting.
//
// A snapshot's copies run on a stream of our own behind every stream that writes. Those streams wait at once for the
// copies of what a forward pass may write, and for the others before the next optimizer step. A restore runs on the
// current stream, behind the writers, and the writers wait for it.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/snapshots/streams.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::agent {

/// Copies that may still be under way.
struct Flight {
  std::vector<std::pair<c10::Device, Streams::Event>>
      events{};                    ///< behind the last copy of each device
  std::vector<at::Tensor> held{};  ///< their memory must not be given to others before
  /// Tensors that nothing but an optimizer's step may write until then, as they were.
  std::vector<std::pair<at::Tensor, std::optional<std::uint32_t>>> versions{};
  bool is_gated = true;
};

/// Training thread only.
class Copies {
 public:
  explicit Copies(std::unique_ptr<Streams> streams) : streams_(std::move(streams)) {}

  /// Where calls to devices are counted; it may return null. They are not the training's.
  void set_ledger(std::function<collectors::SyncLedger*()> ledger) { ledger_ = std::move(ledger); }
  [[nodiscard]] collectors::OwnCalls own() const {
    return collectors::OwnCalls(ledger_ ? ledger_() : nullptr);
  }
  /// A restore first waits for everything on each device, instead of ordering streams.
  void synchronize_devices(bool on) noexcept { synchronizes_devices_ = on; }
  /// The stream may write parameters or state.
  void writes_on(c10::Stream stream);

  [[nodiscard]] bool is_on_host(const at::Tensor& tensor) const {
    return streams_->device_of(tensor).is_cpu();
  }
  [[nodiscard]] at::Tensor host_memory(std::int64_t size) {
    const collectors::OwnCalls ours = own();
    return streams_->host_memory(size);
  }

  /// Copies `from` to the host. With `overlaps`, no stream waits for those that are not `at_once` before gate(); what
  /// CPUs hold is copied before this returns.
  [[nodiscard]] Flight out(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                           const std::vector<bool>& at_once, bool overlaps);
  /// Before an optimizer writes. False if something else wrote what was being copied.
  [[nodiscard]] bool gate(Flight& flight);
  [[nodiscard]] bool has_landed(Flight& flight);
  /// The host waits until the copies have landed.
  void land(Flight& flight);
  /// Copies from the host into living tensors. The flight is over when the host's memory is no longer read.
  [[nodiscard]] Flight back(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);

 private:
  /// Pairs of tensors that lie on one device.
  struct Part {
    c10::Device device;
    std::vector<at::Tensor> to;
    std::vector<at::Tensor> from;
    std::vector<std::size_t> indices;
  };

  [[nodiscard]] std::vector<Part> by_device(const std::vector<at::Tensor>& to,
                                            const std::vector<at::Tensor>& from,
                                            const std::vector<at::Tensor>& placed) const;
  void order(c10::Stream stream, const std::vector<c10::Stream>& before);
  [[nodiscard]] std::vector<c10::Stream> writers_of(c10::Device device);

  std::unique_ptr<Streams> streams_;
  std::function<collectors::SyncLedger*()> ledger_{};
  bool synchronizes_devices_ = false;
  std::vector<c10::Stream> writers_{};
};

}  // namespace gradvane::agent
