#include "agent/device_feed.hpp"

#include <utility>

namespace gradvane::agent {

DeviceFeed::DeviceFeed(std::shared_ptr<const collectors::DeviceSource> source)
    : source_(std::move(source)), reader_(*source_->ring) {}

bool DeviceFeed::next() {
  if (reader_.read_next(header_, stats_).status != kernels::ReadStatus::ok) return false;
  totals_ = header_.totals;
  for (std::size_t i = 0; i < stats_.size() && i < source_->orders.size(); ++i)
    if (stats_[i].first_nonfinite >= 0)
      stats_[i].first_nonfinite = source_->orders[i].row_major(stats_[i].first_nonfinite);
  return true;
}

/// False: nothing there but replays.
bool DeviceFeed::hold_next() {
  while (!held_) {
    if (!next()) return false;
    if (captured_.contains(header_.token)) {
      replays_[header_.token].push_back(stats_);
    } else {
      held_ = true;
    }
  }
  return true;
}

DeviceFeed::Found DeviceFeed::find(std::uint64_t token) {
  while (hold_next()) {
    if (header_.token > token) return Found::lost;
    held_ = false;
    if (header_.token == token) return Found::yes;
  }
  return Found::not_yet;
}

bool DeviceFeed::has_replay(std::uint64_t token) {
  (void)hold_next();
  const auto queue = replays_.find(token);
  return queue != replays_.end() && !queue->second.empty();
}

DeviceFeed::Stats DeviceFeed::take_replay(std::uint64_t token) {
  auto& queue = replays_[token];
  Stats stats = std::move(queue.front());
  queue.pop_front();
  return stats;
}

}  // namespace gradvane::agent
