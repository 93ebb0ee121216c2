#include "agent/ranks/meeting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gradvane::agent::ranks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRanks = 3;

/// Ranks of this process, each on a thread, with an AllGather between them that counts its calls.
class Ranks {
 public:
  AllGather gather_of(int rank) {
    return [this, rank](const std::string& mine) {
      const auto place = static_cast<std::size_t>(rank);
      ++calls[place];
      given_[place] = mine;
      all_.arrive_and_wait();
      std::vector<std::string> told(given_.begin(), given_.end());
      all_.arrive_and_wait();
      return told;
    };
  }

  template <typename Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([=] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<int> calls = std::vector<int>(kRanks);

 private:
  std::vector<std::string> given_ = std::vector<std::string>(kRanks);
  std::barrier<> all_{kRanks};
};

std::string what_of(Meeting& meeting) {
  try {
    (void)meeting.exchange("record");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(MeetingTest, RanksOfOneNodeAreBroughtTogetherByThreeCallsAndThenMeetInSharedMemory) {
  Ranks ranks;
  std::vector<std::vector<std::string>> last(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank));
    for (int step = 0; step < 50; ++step)
      last[static_cast<std::size_t>(rank)] =
          meeting.exchange(std::to_string(100 * step + rank + 1000));
  });
  for (const auto& records : last) EXPECT_THAT(records, ElementsAre("5900", "5901", "5902"));
  EXPECT_THAT(ranks.calls, ElementsAre(3, 3, 3));
}

TEST(MeetingTest, RanksOfSeveralNodesMeetByTheProgramsOwnCalls) {
  Ranks ranks;
  std::vector<std::vector<std::string>> last(kRanks);
  ranks.run([&](int rank) {
    bool is_first = true;
    Meeting meeting([gather = ranks.gather_of(rank), rank, &is_first](const std::string& mine) {
      std::string told = mine;
      if (std::exchange(is_first, false))
        told[told.find('\n') + 1] = static_cast<char>('x' + rank % 2);
      return gather(told);
    });
    for (int step = 0; step < 5; ++step)
      last[static_cast<std::size_t>(rank)] = meeting.exchange(std::to_string(10 * step + rank));
  });
  for (const auto& records : last) EXPECT_THAT(records, ElementsAre("40", "41", "42"));
  EXPECT_THAT(ranks.calls, ElementsAre(6, 6, 6));
}

TEST(MeetingTest, ARankThatLeavesIsSeenByTheOthersWithinASecond) {
  Ranks ranks;
  std::vector<std::string> said(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank));
    (void)meeting.exchange("record");
    if (rank != 1) said[static_cast<std::size_t>(rank)] = what_of(meeting);
  });
  EXPECT_THAT(said, ElementsAre("rank 1 has left", "", "rank 1 has left"));
}

TEST(MeetingTest, ARankThatOnlyDoesNotComeIsWaitedForAsLongAsWasSaid) {
  Ranks ranks;
  std::barrier all(kRanks);
  std::vector<std::string> said(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank), std::chrono::seconds(1));
    (void)meeting.exchange("record");
    if (rank != 1) said[static_cast<std::size_t>(rank)] = what_of(meeting);
    all.arrive_and_wait();
  });
  EXPECT_THAT(said, ElementsAre("no word from a rank for 1 s", "", "no word from a rank for 1 s"));
}

TEST(MeetingTest, WhatAnAllGatherReturnsIsLookedAtBeforeItIsUsed) {
  Meeting nothing([](const std::string&) { return std::vector<std::string>(); });
  EXPECT_THAT(what_of(nothing), HasSubstr("has not returned 256 bytes of each rank"));
  Meeting cut([](const std::string& mine) { return std::vector{mine, mine.substr(1)}; });
  EXPECT_THAT(what_of(cut), HasSubstr("has not returned 256 bytes of each rank"));
  Meeting others(
      [](const std::string& mine) { return std::vector{std::string(mine.size(), 'x')}; });
  EXPECT_THAT(what_of(others), HasSubstr("cannot be read"));
  Meeting not_mine([](const std::string& mine) { return std::vector{"?" + mine.substr(1)}; });
  EXPECT_THAT(what_of(not_mine), HasSubstr("has not returned what this rank gave"));
  Meeting throws(
      [](const std::string&) -> std::vector<std::string> { throw std::runtime_error("a socket"); });
  EXPECT_EQ(what_of(throws), "a socket");
}

}  // namespace
}  // namespace gradvane::agent::ranks
