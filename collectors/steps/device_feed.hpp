#pragma once
// One device's ring, as the worker reads it: in order, matching slots to the host calls that asked for
// them.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "collectors/steps/device_source.hpp"
#include "kernels/result_ring.hpp"

namespace gradvane::collectors {

/// The worker's. A slot whose token is older than the one asked for belongs to a read that nobody
/// claimed; one that is newer means that the slot asked for was overwritten. Slots of a captured graph
/// are set aside: each replay writes one more with the same token.
class DeviceFeed {
 public:
  using Stats = std::vector<kernels::TensorStats>;
  enum class Found : std::uint8_t { yes, not_yet, lost };

  explicit DeviceFeed(std::shared_ptr<const DeviceSource> source);

  /// Looks for the slot of `token`, which asks in rising order. With yes, header() and stats() are its
  /// own, in row-major indices.
  Found find(std::uint64_t token);

  /// From now on `token` is that of a captured graph.
  void note_captured(std::uint64_t token);
  /// Whether a replay of `token` has arrived that was not taken yet; `further`: also behind what find()
  /// has looked at.
  [[nodiscard]] bool has_replay(std::uint64_t token, bool further);
  struct Replay {
    kernels::SlotHeader header;
    Stats stats;
  };
  /// The oldest such one; only where there is one.
  [[nodiscard]] Replay take_replay(std::uint64_t token);

  [[nodiscard]] const kernels::SlotHeader& header() const noexcept { return header_; }
  [[nodiscard]] const Stats& stats() const noexcept { return stats_; }

 private:
  bool next();
  bool hold_next();
  void set_aside();

  std::shared_ptr<const DeviceSource> source_;
  kernels::RingReader reader_;
  kernels::SlotHeader header_;
  Stats stats_;
  bool held_ = false;  ///< header_ and stats_ are a slot that is still to be asked for
  std::set<std::uint64_t> captured_;
  std::map<std::uint64_t, std::deque<Replay>> replays_;  ///< by token
  std::uint64_t asked_ = 0;                              ///< the token that find() was asked for
  bool overwritten_ = false;                             ///< slots have been, since then
};

}  // namespace gradvane::collectors
