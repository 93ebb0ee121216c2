#include "collectors/steps/device_feed.hpp"

#include <utility>

namespace gradvane::collectors {

DeviceFeed::DeviceFeed(std::shared_ptr<const DeviceSource> source)
    : source_(std::move(source)), reader_(*source_->ring) {}

bool DeviceFeed::next() {
  const kernels::ReadResult result = reader_.read_next(header_, stats_);
  overwritten_ |= result.lost > 0;
  if (result.status != kernels::ReadStatus::ok) return false;
  for (std::size_t i = 0; i < stats_.size() && i < source_->orders.size(); ++i)
    if (stats_[i].first_nonfinite >= 0)
      stats_[i].first_nonfinite = source_->orders[i].row_major(stats_[i].first_nonfinite);
  return true;
}

void DeviceFeed::set_aside() {
  replays_[header_.token].push_back({header_, stats_});
  held_ = false;
}

/// False: nothing there but replays.
bool DeviceFeed::hold_next() {
  while (!held_) {
    if (!next()) return false;
    held_ = true;
    if (captured_.contains(header_.token)) set_aside();
  }
  return true;
}

DeviceFeed::Found DeviceFeed::find(std::uint64_t token) {
  const bool again = token == asked_;
  asked_ = token;
  while (hold_next()) {
    if (header_.token > token) return Found::lost;
    held_ = false;
    if (header_.token == token) return Found::yes;
  }
  // A ring's length of replays may have come and gone over it.
  const bool gone = again && overwritten_;
  overwritten_ = false;
  return gone ? Found::lost : Found::not_yet;
}

void DeviceFeed::note_captured(std::uint64_t token) {
  captured_.insert(token);
  if (held_ && header_.token == token) set_aside();
}

bool DeviceFeed::has_replay(std::uint64_t token, bool further) {
  if (further) (void)hold_next();
  const auto queue = replays_.find(token);
  return queue != replays_.end() && !queue->second.empty();
}

DeviceFeed::Replay DeviceFeed::take_replay(std::uint64_t token) {
  auto& queue = replays_[token];
  Replay replay = std::move(queue.front());
  queue.pop_front();
  return replay;
}

}  // namespace gradvane::collectors
