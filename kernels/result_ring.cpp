#include "kernels/result_ring.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gradvane::kernels {
namespace {

std::size_t payload_bytes(std::int64_t max_tensors) noexcept {
  return record_offset(static_cast<std::size_t>(max_tensors));
}

std::int64_t checked(std::int64_t max_tensors) {
  if (max_tensors < 0) {
    throw std::invalid_argument("ResultRing: max_tensors is " + std::to_string(max_tensors));
  }
  return max_tensors;
}

}  // namespace

ResultRing::ResultRing(int slots, std::int64_t max_tensors)
    : max_tensors_(checked(max_tensors)), ring_(slots, payload_bytes(max_tensors)) {}

ResultRing::ResultRing(int slots, std::int64_t max_tensors, std::span<std::byte> memory)
    : max_tensors_(checked(max_tensors)), ring_(slots, payload_bytes(max_tensors), memory) {}

std::size_t ResultRing::bytes_needed(int slots, std::int64_t max_tensors) noexcept {
  return SlotRing::bytes_needed(slots, payload_bytes(max_tensors));
}

int ResultRing::slots_for(int asked, std::int64_t max_tensors) noexcept {
  constexpr std::size_t kUsualBytes = 1 << 20;
  constexpr std::size_t kMostBytes = 64 << 20;
  const std::size_t each = bytes_needed(2, max_tensors) - bytes_needed(1, max_tensors);
  const auto within = [&](std::size_t bytes, int least, int most) {
    return static_cast<int>(std::clamp<std::size_t>(bytes / each, static_cast<std::size_t>(least),
                                                    static_cast<std::size_t>(most)));
  };
  const int wanted = asked > 0 ? asked : within(kUsualBytes, 64, 1024);
  return within(kMostBytes, 2, std::max(wanted, 2));
}

RingProducer::RingProducer(ResultRing& ring, ProducerState state) noexcept
    : ring_(&ring), state_(state) {}

std::uint64_t RingProducer::publish(std::uint64_t plan_id, std::span<const Site> sites,
                                    std::span<const TensorStats> stats,
                                    std::uint64_t token) noexcept {
  const std::size_t count = std::min(sites.size(), stats.size());
  const std::uint64_t sequence = ++state_.sequence;
  accumulate_totals(state_.totals, sequence, plan_id, sites.data(), stats.data(),
                    static_cast<std::int64_t>(count));
  const auto carried = stats.first(std::min(count, static_cast<std::size_t>(ring_->max_tensors())));
  SlotHeader header;
  header.sequence = sequence;
  header.plan_id = plan_id;
  header.tensors = static_cast<std::int64_t>(carried.size());
  header.token = token != 0 ? token : sequence;
  header.totals = state_.totals;
  SlotRing& slots = ring_->slots();
  slots.begin(sequence);
  slots.put(sequence, 0, std::as_bytes(std::span(&header, 1)));
  for (std::size_t i = 0; i < carried.size(); ++i)
    slots.put(sequence, record_offset(i), std::as_bytes(carried.subspan(i, 1)));
  slots.end(sequence);
  return sequence;
}

RingReader::RingReader(const ResultRing& ring, std::uint64_t after) noexcept
    : ring_(&ring), next_(after + 1) {}

ReadResult RingReader::read_next(SlotHeader& header, std::vector<TensorStats>& stats) {
  // A producer that laps us at every attempt must not hold us here: after a few, its newest is next.
  constexpr int kAttempts = 4;
  ReadResult result;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    result.status = read(next_, header, stats);
    if (result.status == ReadStatus::ok) {
      ++next_;
      return result;
    }
    if (result.status == ReadStatus::empty) return result;
    // The oldest slot is the one that the producer takes next: leave it a little room each time.
    const std::uint64_t latest = ring_->latest();
    const std::uint64_t oldest = std::min(ring_->slots().oldest() + (1u << attempt) - 1, latest);
    const std::uint64_t to = std::max(oldest, next_ + 1);
    result.lost += to - next_;
    next_ = to;
  }
  result.status = ReadStatus::empty;
  return result;
}

ReadStatus RingReader::read(std::uint64_t sequence, SlotHeader& header,
                            std::vector<TensorStats>& stats) const {
  const auto meaning = [](SlotStatus status) {
    if (status == SlotStatus::ok) return ReadStatus::ok;
    return status == SlotStatus::not_yet ? ReadStatus::empty : ReadStatus::overwritten;
  };
  const SlotRing& slots = ring_->slots();
  SlotStatus status = slots.read(sequence, header);
  if (status != SlotStatus::ok) return meaning(status);
  const std::int64_t tensors = std::clamp<std::int64_t>(header.tensors, 0, ring_->max_tensors());
  stats.resize(static_cast<std::size_t>(tensors));
  for (std::size_t i = 0; i < stats.size() && status == SlotStatus::ok; ++i)
    status =
        slots.read(sequence, std::as_writable_bytes(std::span(&stats[i], 1)), record_offset(i));
  return meaning(status);
}

}  // namespace gradvane::kernels
