#include "kernels/slot_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gradvane::kernels {
namespace {

// A payload that shows whether all of it is of one write.
struct Sample {
  std::uint64_t sequence = 0;
  std::array<std::uint64_t, 510> words{};
  std::uint64_t checksum = 0;
};

std::uint64_t checksum_of(const Sample& sample) {
  std::uint64_t sum = sample.sequence * 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : sample.words) sum = (sum ^ word) * 0x100000001b3;
  return sum;
}

Sample sample_of(std::uint64_t sequence) {
  Sample sample;
  sample.sequence = sequence;
  for (std::size_t i = 0; i < sample.words.size(); ++i) sample.words[i] = sequence * 1000 + i;
  sample.checksum = checksum_of(sample);
  return sample;
}

bool is_whole(const Sample& sample) { return sample.checksum == checksum_of(sample); }

TEST(SlotRing, ReturnsWhatWasWritten) {
  SlotRing ring(4, sizeof(Sample));
  EXPECT_EQ(ring.latest(), 0u);
  EXPECT_EQ(ring.oldest(), 1u);
  Sample sample;
  EXPECT_EQ(ring.read(1, sample), SlotStatus::not_yet);
  ASSERT_TRUE(ring.write(1, sample_of(1)));
  EXPECT_EQ(ring.latest(), 1u);
  ASSERT_EQ(ring.read(1, sample), SlotStatus::ok);
  EXPECT_EQ(sample.sequence, 1u);
  EXPECT_TRUE(is_whole(sample));
  EXPECT_EQ(ring.read(2, sample), SlotStatus::not_yet);
  EXPECT_EQ(ring.read(5, sample), SlotStatus::not_yet);
  EXPECT_EQ(ring.read(0, sample), SlotStatus::not_yet);
}

TEST(SlotRing, OverwritesItsOldestSlotAndSaysSo) {
  SlotRing ring(4, sizeof(Sample));
  for (std::uint64_t s = 1; s <= 11; ++s) ASSERT_TRUE(ring.write(s, sample_of(s)));
  EXPECT_EQ(ring.latest(), 11u);
  EXPECT_EQ(ring.oldest(), 8u);
  Sample sample;
  for (std::uint64_t s = 1; s < 8; ++s) EXPECT_EQ(ring.read(s, sample), SlotStatus::overwritten);
  for (std::uint64_t s = 8; s <= 11; ++s) {
    ASSERT_EQ(ring.read(s, sample), SlotStatus::ok);
    EXPECT_EQ(sample.sequence, s);
  }
  EXPECT_EQ(ring.read(12, sample), SlotStatus::not_yet);
}

TEST(SlotRing, WorksWithOneSlotAndFromAnyFirstSequence) {
  SlotRing ring(1, 8);
  std::uint64_t value = 0;
  for (std::uint64_t s = 1'000'000'007; s < 1'000'000'010; ++s) {
    ASSERT_TRUE(ring.write(s, s * 3));
    ASSERT_EQ(ring.read(s, value), SlotStatus::ok);
    EXPECT_EQ(value, s * 3);
    EXPECT_EQ(ring.read(s - 1, value), SlotStatus::overwritten);
  }
}

TEST(SlotRing, PutsEachPartAtAMultipleOfEightBytes) {
  SlotRing ring(2, 64);
  const std::uint32_t three[] = {1, 2, 3};
  const char letter = 'x';
  ASSERT_TRUE(ring.write(1, std::span<const std::uint32_t>(three), letter, std::uint64_t{9}));
  std::array<std::byte, 32> bytes{};
  ASSERT_EQ(ring.read(1, bytes), SlotStatus::ok);
  std::uint32_t read_back[4];
  std::memcpy(read_back, bytes.data(), sizeof(read_back));
  EXPECT_EQ(read_back[0], 1u);
  EXPECT_EQ(read_back[2], 3u);
  EXPECT_EQ(read_back[3], 0u) << "the rest of a word is filled with zeros";
  EXPECT_EQ(static_cast<char>(bytes[16]), 'x');
  EXPECT_EQ(static_cast<int>(bytes[24]), 9);

  std::uint64_t last = 0;
  ASSERT_EQ(ring.read(1, std::as_writable_bytes(std::span(&last, 1)), 24), SlotStatus::ok);
  EXPECT_EQ(last, 9u);
  std::array<std::byte, 3> few{};  // not a whole word
  ASSERT_EQ(ring.read(1, few, 16), SlotStatus::ok);
  EXPECT_EQ(static_cast<char>(few[0]), 'x');
}

TEST(SlotRing, RefusesWhatDoesNotFitAndWritesNothing) {
  SlotRing ring(2, 16);
  ASSERT_TRUE(ring.write(1, std::uint64_t{7}));
  EXPECT_FALSE(ring.write(2, std::array<std::uint64_t, 3>{}));
  EXPECT_FALSE(ring.write(0, std::uint64_t{1}));
  EXPECT_EQ(ring.latest(), 1u);
  std::uint64_t value = 0;
  EXPECT_EQ(ring.read(1, value), SlotStatus::ok);
  EXPECT_EQ(value, 7u);
  std::array<std::byte, 24> too_long{};
  EXPECT_EQ(ring.read(1, too_long), SlotStatus::not_yet);
  EXPECT_EQ(ring.read(1, std::span(too_long).first(8), 16), SlotStatus::not_yet);
  EXPECT_EQ(ring.read(1, std::span(too_long).first(8), 4), SlotStatus::not_yet);
}

TEST(SlotRing, RefusesSizesAndMemoryThatCannotBe) {
  EXPECT_THROW(SlotRing(0, 8), std::invalid_argument);
  EXPECT_THROW(SlotRing(-1, 8), std::invalid_argument);
  EXPECT_THROW(SlotRing(1, 0), std::invalid_argument);
  alignas(128) std::array<std::byte, 1024> memory{};
  EXPECT_THROW(SlotRing(4, 64, std::span(memory).subspan(64)), std::invalid_argument);
  EXPECT_THROW(SlotRing(100, 64, memory), std::invalid_argument);
}

// What a device writes, and a host of another build reads: offsets as the header documents them.
TEST(SlotRing, LaysItsMemoryOutAsDocumented) {
  constexpr std::size_t kPayload = 24;
  EXPECT_EQ(SlotRing::bytes_needed(3, kPayload), 128u + 3 * 128);
  EXPECT_EQ(SlotRing::bytes_needed(3, 113), 128u + 3 * 256);
  alignas(128) std::array<std::uint64_t, 64> memory;
  memory.fill(~std::uint64_t{0});
  SlotRing ring(3, kPayload, std::as_writable_bytes(std::span(memory)));
  EXPECT_EQ(std::memcmp(memory.data(), "GVRING01", 8), 0);
  EXPECT_EQ(memory[1], 3u);
  EXPECT_EQ(memory[2], kPayload);
  EXPECT_EQ(memory[3], 128u);
  EXPECT_EQ(memory[8], 0u);

  ASSERT_TRUE(ring.write(4, std::array<std::uint64_t, 3>{10, 11, 12}));
  EXPECT_EQ(memory[8], 4u);
  const std::size_t slot = (128 + 4 % 3 * 128) / 8;
  EXPECT_EQ(memory[slot], 4u);
  EXPECT_EQ(memory[slot + 1], 4u);
  EXPECT_EQ(memory[slot + 2], 10u);
  EXPECT_EQ(memory[slot + 4], 12u);

  // A foreign producer's write, by hand: begun, then finished.
  const std::size_t next = (128 + 5 % 3 * 128) / 8;
  memory[next] = 5;
  memory[next + 2] = 42;
  std::uint64_t value = 0;
  EXPECT_EQ(ring.read(5, value), SlotStatus::not_yet);
  memory[next + 1] = 5;
  EXPECT_EQ(ring.read(5, value), SlotStatus::ok);
  EXPECT_EQ(value, 42u);
  memory[next] = 8;  // the next lap has begun
  EXPECT_EQ(ring.read(5, value), SlotStatus::overwritten);
  EXPECT_EQ(ring.read(8, value), SlotStatus::not_yet);
}

// The check has to be able to fail: half of one write and half of another is not whole.
TEST(SlotRing, ATornCopyIsNoticedByTheChecksumAndByTheRing) {
  SlotRing ring(1, sizeof(Sample));
  const auto* payload = reinterpret_cast<const std::byte*>(ring.memory().data()) +
                        sizeof(RingHeader) + sizeof(SlotLock);
  ASSERT_TRUE(ring.write(1, sample_of(1)));
  Sample torn;
  std::array<std::byte, sizeof(Sample)> copy{};
  std::memcpy(copy.data(), payload, sizeof(Sample) / 2);
  ASSERT_TRUE(ring.write(2, sample_of(2)));
  std::memcpy(copy.data() + sizeof(Sample) / 2, payload + sizeof(Sample) / 2, sizeof(Sample) / 2);
  std::memcpy(&torn, copy.data(), sizeof(torn));
  EXPECT_FALSE(is_whole(torn));
  EXPECT_EQ(ring.read(1, torn), SlotStatus::overwritten);

  // A producer that finishes before its payload is there: no ring could notice, the checksum does.
  Sample half = sample_of(3);
  half.words[30] = 0;
  ASSERT_TRUE(ring.write(3, half));
  ASSERT_EQ(ring.read(3, torn), SlotStatus::ok);
  EXPECT_FALSE(is_whole(torn));
}

TEST(SlotRing, ReadersOnOtherThreadsNeverSeeATornSlot) {
  constexpr std::uint64_t kWrites = 10'000;
  for (const int slots : {1, 2, 16}) {
    SlotRing ring(slots, sizeof(Sample));
    std::atomic<std::uint64_t> whole{0}, torn{0}, wrong{0}, lapped{0};
    std::atomic<int> running{0};
    std::atomic<bool> is_over{false};
    {
      std::vector<std::jthread> readers;
      for (std::uint64_t r = 0; r < 3; ++r) {
        readers.emplace_back([&, r] {
          ++running;
          Sample sample;
          while (!is_over) {
            // The newest, the one about to be overwritten, and the one about to be finished.
            const std::uint64_t sequence = r == 0   ? ring.latest()
                                           : r == 1 ? ring.oldest()
                                                    : ring.latest() + 1;
            switch (ring.read(sequence, sample)) {
              case SlotStatus::ok:
                ++whole;
                if (!is_whole(sample)) ++torn;
                if (sample.sequence != sequence) ++wrong;
                break;
              case SlotStatus::overwritten:
                ++lapped;
                break;
              case SlotStatus::not_yet:
                break;
            }
          }
        });
      }
      while (running < 3) std::this_thread::yield();
      for (std::uint64_t s = 1; s <= kWrites || whole == 0; ++s) {  // until a reader had a core
        ring.write(s, sample_of(s));
        if (s % 64 == 0) std::this_thread::yield();
      }
      is_over = true;
    }
    EXPECT_EQ(torn, 0u);
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(whole, 0u);
    RecordProperty("lapped_with_" + std::to_string(slots), static_cast<int>(lapped));
  }
}

}  // namespace
}  // namespace gradvane::kernels
