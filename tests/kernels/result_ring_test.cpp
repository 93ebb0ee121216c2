#include "kernels/result_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/kernels/indices.hpp"

namespace gradvane::kernels {
namespace {

using test::kGrad;
using test::kNan;

// A read whose every number follows from its sequence number, so that a mixture of two shows. Every
// third one has a NaN.
std::vector<TensorStats> read_number(std::uint64_t sequence, std::size_t tensors) {
  std::vector<TensorStats> stats(tensors);
  for (std::size_t i = 0; i < tensors; ++i) {
    stats[i].numel = static_cast<std::int64_t>(sequence);
    stats[i].zero = static_cast<std::int64_t>(sequence + i);
    stats[i].sum_sq = static_cast<double>(sequence * 3 + i);
    if (sequence % 3 == 0 && i == tensors - 1) {
      stats[i].nan = 1;
      stats[i].first_nonfinite = static_cast<std::int64_t>(sequence);
      stats[i].first_kind = 0;
    }
  }
  return stats;
}

bool is_read_number(std::uint64_t sequence, const SlotHeader& header,
                    const std::vector<TensorStats>& stats) {
  const std::vector<TensorStats> expected = read_number(sequence, stats.size());
  return header.sequence == sequence &&
         header.totals.elements[kGrad][kNan] == static_cast<std::int64_t>(sequence / 3) &&
         std::memcmp(stats.data(), expected.data(), stats.size() * sizeof(TensorStats)) == 0;
}

std::uint64_t publish(RingProducer& producer, std::size_t tensors) {
  const std::vector<Site> sites(tensors, Site::grad);
  return producer.publish(1, sites, read_number(producer.state().sequence + 1, tensors));
}

TEST(ResultRing, DeliversEveryReadInOrderWhileTheReaderKeepsUp) {
  ResultRing ring(4, 3);
  RingProducer producer(ring);
  RingReader reader(ring);
  SlotHeader header;
  std::vector<TensorStats> stats;
  EXPECT_EQ(reader.read_next(header, stats).status, ReadStatus::empty);
  for (std::uint64_t s = 1; s <= 20; ++s) {
    EXPECT_EQ(publish(producer, 3), s);
    EXPECT_EQ(reader.next(), s);
    const ReadResult result = reader.read_next(header, stats);
    ASSERT_EQ(result.status, ReadStatus::ok);
    EXPECT_EQ(result.lost, 0u);
    EXPECT_EQ(header.plan_id, 1u);
    EXPECT_EQ(header.tensors, 3);
    EXPECT_TRUE(is_read_number(s, header, stats));
  }
  EXPECT_EQ(reader.read_next(header, stats).status, ReadStatus::empty);
}

TEST(ResultRing, SkipsWhatWasOverwrittenCountsItAndLosesNothingFromTheTotals) {
  ResultRing ring(4, 2);
  RingProducer producer(ring);
  RingReader reader(ring);
  for (int i = 0; i < 30; ++i) publish(producer, 2);
  SlotHeader header;
  std::vector<TensorStats> stats;
  ReadResult result = reader.read_next(header, stats);
  ASSERT_EQ(result.status, ReadStatus::ok);
  EXPECT_EQ(result.lost, 26u);
  EXPECT_TRUE(is_read_number(27, header, stats)) << "the oldest that is still there";
  for (std::uint64_t s = 28; s <= 30; ++s) {
    result = reader.read_next(header, stats);
    ASSERT_EQ(result.status, ReadStatus::ok);
    EXPECT_EQ(result.lost, 0u);
  }
  EXPECT_EQ(header.totals.elements[kGrad][kNan], 10);
  EXPECT_EQ(header.totals.reads[kGrad], 10);
  EXPECT_EQ(header.totals.first[kGrad].sequence, 3u) << "a read that nobody saw";
  EXPECT_EQ(header.totals.first[kGrad].tensor, 1);
  EXPECT_EQ(header.totals.first[kGrad].element, 3);
}

TEST(ResultRing, ReadsAGivenSequenceWithoutMovingOn) {
  ResultRing ring(4, 2);
  RingProducer producer(ring);
  RingReader reader(ring);
  for (int i = 0; i < 6; ++i) publish(producer, 2);
  SlotHeader header;
  std::vector<TensorStats> stats;
  EXPECT_EQ(reader.read(5, header, stats), ReadStatus::ok);
  EXPECT_TRUE(is_read_number(5, header, stats));
  EXPECT_EQ(reader.read(2, header, stats), ReadStatus::overwritten);
  EXPECT_EQ(reader.read(7, header, stats), ReadStatus::empty);
  EXPECT_EQ(reader.next(), 1u);
}

TEST(ResultRing, SequenceAndTotalsGoOnInABiggerRing) {
  ResultRing small(4, 2);
  RingProducer producer(small);
  for (int i = 0; i < 7; ++i) publish(producer, 2);

  ResultRing big(8, 5);
  RingProducer next(big, producer.state());
  RingReader reader(big, producer.state().sequence);
  SlotHeader header;
  std::vector<TensorStats> stats;
  EXPECT_EQ(reader.read_next(header, stats).status, ReadStatus::empty);
  EXPECT_EQ(publish(next, 5), 8u);
  EXPECT_EQ(publish(next, 5), 9u);
  const ReadResult result = reader.read_next(header, stats);
  ASSERT_EQ(result.status, ReadStatus::ok);
  EXPECT_EQ(result.lost, 0u);
  EXPECT_TRUE(is_read_number(8, header, stats));
  EXPECT_EQ(stats.size(), 5u);
  EXPECT_EQ(header.totals.first[kGrad].sequence, 3u);
}

TEST(ResultRing, AReadOfMoreTensorsThanFitSaysHowManyItCarriesAndCountsThemAll) {
  ResultRing ring(2, 2);
  RingProducer producer(ring);
  publish(producer, 5);
  publish(producer, 5);
  publish(producer, 5);  // its NaN is in the fifth tensor
  RingReader reader(ring, 2);
  SlotHeader header;
  std::vector<TensorStats> stats;
  ASSERT_EQ(reader.read_next(header, stats).status, ReadStatus::ok);
  EXPECT_EQ(header.tensors, 2);
  EXPECT_EQ(stats.size(), 2u);
  EXPECT_EQ(header.totals.elements[kGrad][kNan], 1);
  EXPECT_EQ(header.totals.first[kGrad].tensor, 4);
}

TEST(ResultRing, ARingOfNoTensorsCarriesTheTotals) {
  ResultRing ring(2, 0);
  RingProducer producer(ring);
  producer.publish(3, {}, {});
  RingReader reader(ring);
  SlotHeader header;
  std::vector<TensorStats> stats(4);
  ASSERT_EQ(reader.read_next(header, stats).status, ReadStatus::ok);
  EXPECT_TRUE(stats.empty());
  EXPECT_EQ(header.plan_id, 3u);
}

TEST(ResultRing, RunsOverMemoryOfTheCallerAndRefusesImpossibleSizes) {
  const std::size_t bytes = ResultRing::bytes_needed(4, 3);
  constexpr std::size_t kAlignment = SlotRing::kAlignment;
  std::vector<std::byte> memory(bytes + kAlignment);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  ResultRing ring(
      4, 3, std::span(memory).subspan((kAlignment - address % kAlignment) % kAlignment, bytes));
  RingProducer producer(ring);
  publish(producer, 3);
  SlotHeader header;
  std::vector<TensorStats> stats;
  EXPECT_EQ(RingReader(ring).read(1, header, stats), ReadStatus::ok);
  EXPECT_TRUE(is_read_number(1, header, stats));
  EXPECT_THROW(ResultRing(0, 3), std::invalid_argument);
  EXPECT_THROW(ResultRing(4, -1), std::invalid_argument);
}

TEST(ResultRing, SmallReadsGetMoreSlotsAndLargeOnesNoMoreThanMemoryAllows) {
  const auto bytes = [](int slots, std::int64_t tensors) {
    return static_cast<double>(ResultRing::bytes_needed(slots, tensors)) / (1 << 20);
  };
  EXPECT_EQ(ResultRing::slots_for(0, 0), 1024);
  EXPECT_EQ(ResultRing::slots_for(0, 5), 1024);
  EXPECT_EQ(ResultRing::slots_for(0, 8'000), 64) << "63 MiB";
  for (const std::int64_t tensors : {10, 50, 100}) {
    const int slots = ResultRing::slots_for(0, tensors);
    EXPECT_GT(slots, 64);
    EXPECT_LT(bytes(slots - 1, tensors), 1);
    EXPECT_GE(bytes(slots + 1, tensors), 1) << tensors << " tensors: no fewer than fit";
  }
  EXPECT_EQ(ResultRing::slots_for(8, 6), 8) << "who asks for a number gets it";
  EXPECT_EQ(ResultRing::slots_for(65'536, 5), 65'536);
  EXPECT_EQ(ResultRing::slots_for(1, 6), 2) << "one is being written";
  for (const int asked : {0, 64, 65'536}) {
    const int slots = ResultRing::slots_for(asked, 20'000);
    EXPECT_LE(bytes(slots - 1, 20'000), 64);
    EXPECT_GE(bytes(slots + 1, 20'000), 64);
  }
  EXPECT_EQ(ResultRing::slots_for(0, 10'000'000), 2);
}

// As in a training process: the producer never waits, and readers of any speed account for every read
// as seen or lost, whole or not at all.
TEST(ResultRing, EveryReadIsSeenWholeOrCountedAsLostByReadersOnOtherThreads) {
  constexpr std::uint64_t kReads = 20'000;
  constexpr std::size_t kTensors = 9;
  ResultRing ring(8, kTensors);
  std::atomic<int> running{0};
  struct Outcome {
    std::uint64_t seen = 0, lost = 0, broken = 0, disorder = 0;
    RunningTotals totals;
  };
  std::array<Outcome, 2> outcomes;
  {
    std::vector<std::jthread> readers;
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      readers.emplace_back([&, r] {
        ++running;
        RingReader reader(ring);
        SlotHeader header;
        std::vector<TensorStats> stats;
        Outcome& outcome = outcomes[r];
        std::uint64_t last = 0;
        while (last < kReads) {
          const ReadResult result = reader.read_next(header, stats);
          outcome.lost += result.lost;
          if (result.status != ReadStatus::ok) continue;
          ++outcome.seen;
          if (!is_read_number(header.sequence, header, stats)) ++outcome.broken;
          if (header.sequence <= last) ++outcome.disorder;
          last = header.sequence;
          outcome.totals = header.totals;
          if (r == 1) std::this_thread::yield();  // the slow one
        }
      });
    }
    while (running < 2) std::this_thread::yield();
    RingProducer producer(ring);
    for (std::uint64_t i = 0; i < kReads; ++i) {
      publish(producer, kTensors);
      if (i % 16 == 0) std::this_thread::yield();
    }
  }
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.broken, 0u);
    EXPECT_EQ(outcome.disorder, 0u);
    EXPECT_EQ(outcome.seen + outcome.lost, kReads);
    EXPECT_GT(outcome.seen, 0u);
    EXPECT_EQ(outcome.totals.elements[kGrad][kNan], static_cast<std::int64_t>(kReads / 3));
    EXPECT_EQ(outcome.totals.reads[kGrad], static_cast<std::int64_t>(kReads / 3));
  }
}

}  // namespace
}  // namespace gradvane::kernels
