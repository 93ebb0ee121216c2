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
const std::string kRecord(112, 'r');  // as long as those of ranks are

/// Ranks 0 and 2 are on one node, 1 is on another.
MeetingOptions of_two_nodes(int rank) { return {.node = rank == 1 ? "another" : this_node()}; }

/// Ranks of this process, each on a thread, with AllGathers between them.
class Ranks {
 public:
  AllGather gather_of(int rank) {
    return [this, rank](const std::string& mine) { return all_.gather(rank, mine); };
  }
  GatherAmong among_of(int rank) {
    return [this, rank](const std::vector<int>& ranks) -> AllGather {
      EXPECT_THAT(ranks, ElementsAre(0, 1)) << "the first of each node";
      return [this, rank](const std::string& mine) { return leaders_.gather(rank, mine); };
    };
  }

  template <typename Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([=] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  [[nodiscard]] const std::vector<int>& calls() const { return all_.calls; }
  [[nodiscard]] const std::vector<int>& calls_of_leaders() const { return leaders_.calls; }

 private:
  struct Gathering {
    explicit Gathering(int ranks)
        : calls(static_cast<std::size_t>(ranks)), given(calls.size()), together(ranks) {}

    std::vector<std::string> gather(int rank, const std::string& mine) {
      const auto place = static_cast<std::size_t>(rank);
      ++calls[place];
      given[place] = mine;
      together.arrive_and_wait();
      std::vector<std::string> told = given;
      together.arrive_and_wait();
      return told;
    }

    std::vector<int> calls;
    std::vector<std::string> given;
    std::barrier<> together;
  };
  Gathering all_{kRanks};
  Gathering leaders_{2};
};

std::string what_of(Meeting& meeting) {
  try {
    (void)meeting.exchange(kRecord);
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
  EXPECT_THAT(ranks.calls(), ElementsAre(3, 3, 3));
}

TEST(MeetingTest, RanksOfSeveralNodesMeetByTheProgramsOwnCalls) {
  Ranks ranks;
  std::vector<std::vector<std::string>> last(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank), {}, of_two_nodes(rank));
    for (int step = 0; step < 5; ++step)
      last[static_cast<std::size_t>(rank)] = meeting.exchange(std::to_string(10 * step + rank));
  });
  for (const auto& records : last) EXPECT_THAT(records, ElementsAre("40", "41", "42"));
  EXPECT_THAT(ranks.calls(), ElementsAre(6, 6, 6));
}

TEST(MeetingTest, TheFirstRankOfEachNodeSpeaksForItIfTheProgramCanBringTheseTogether) {
  Ranks ranks;
  std::vector<std::vector<std::string>> last(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank), ranks.among_of(rank), of_two_nodes(rank));
    for (int step = 0; step < 50; ++step)
      last[static_cast<std::size_t>(rank)] =
          meeting.exchange(std::to_string(100 * step + rank + 1000));
  });
  for (const auto& records : last) EXPECT_THAT(records, ElementsAre("5900", "5901", "5902"));
  EXPECT_THAT(ranks.calls(), ElementsAre(5, 5, 5)) << "to find each other";
  EXPECT_THAT(ranks.calls_of_leaders(), ElementsAre(50, 50))
      << "one in each step; rank 2 makes none";
}

TEST(MeetingTest, ARankThatHasLeftIsMissedOnTheOtherNodeToo) {
  Ranks ranks;
  std::vector<std::string> said(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank), ranks.among_of(rank), of_two_nodes(rank));
    (void)meeting.exchange(kRecord);
    if (rank != 2) said[static_cast<std::size_t>(rank)] = what_of(meeting);
  });
  EXPECT_THAT(said, ElementsAre("rank 2 has left", "rank 2 has left", ""));
}

TEST(MeetingTest, ALeaderThatHasLeftIsMissedByItsOwnNodeAndNoLaterExchangeIsTried) {
  Ranks ranks;
  std::vector<std::string> said(kRanks);
  std::string again;
  ranks.run([&](int rank) {
    const GatherAmong none_comes = [](const std::vector<int>&) -> AllGather {
      return [calls = 0](const std::string& mine) mutable {
        if (++calls > 1) throw std::runtime_error("no word from the other node");
        return std::vector<std::string>(2, mine);  // as if both nodes had said the same
      };
    };
    Meeting meeting(ranks.gather_of(rank), none_comes, of_two_nodes(rank));
    (void)meeting.exchange(kRecord);
    if (rank == 0) return;
    said[static_cast<std::size_t>(rank)] = what_of(meeting);
    if (rank == 2) again = what_of(meeting);
  });
  EXPECT_THAT(said, ElementsAre("", "no word from the other node", "rank 0 has left"));
  EXPECT_THAT(again, HasSubstr("an exchange before this one has failed"));
}

TEST(MeetingTest, AnExchangeThatBreaksOffIsNotTakenForAMeetingOfThisNodeAlone) {
  Ranks ranks;
  std::vector<std::string> said(kRanks);
  ranks.run([&](int rank) {
    const AllGather interrupted = [gather = ranks.gather_of(rank),
                                   calls = 0](const std::string& mine) mutable {
      if (++calls > 3)
        throw std::runtime_error("interrupted");  // one board is there, the other is not
      return gather(mine);
    };
    Meeting meeting(interrupted, ranks.among_of(rank), of_two_nodes(rank));
    EXPECT_EQ(what_of(meeting), "interrupted");
    EXPECT_EQ(meeting.place(), MeetingPlace::not_yet);
    said[static_cast<std::size_t>(rank)] = what_of(meeting);
  });
  for (const std::string& one : said)
    EXPECT_THAT(one, HasSubstr("an exchange before this one has failed"));
}

TEST(MeetingTest, IfTheOtherNodeCannotBeReachedNoRankOfThisOneWaitsForIt) {
  Ranks ranks;
  std::vector<std::string> said(kRanks);
  ranks.run([&](int rank) {
    const GatherAmong broken = [](const std::vector<int>&) -> AllGather {
      return [](const std::string&) -> std::vector<std::string> {
        throw std::runtime_error("the wire is cut");
      };
    };
    Meeting meeting(ranks.gather_of(rank), broken, of_two_nodes(rank));
    said[static_cast<std::size_t>(rank)] = what_of(meeting);
  });
  EXPECT_THAT(said, ElementsAre("the wire is cut", "the wire is cut",
                                "the ranks of other nodes could not be reached"));
}

TEST(MeetingTest, ARankThatLeavesIsSeenByTheOthersWithinASecond) {
  Ranks ranks;
  std::vector<std::string> said(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank));
    (void)meeting.exchange(kRecord);
    if (rank != 1) said[static_cast<std::size_t>(rank)] = what_of(meeting);
  });
  EXPECT_THAT(said, ElementsAre("rank 1 has left", "", "rank 1 has left"));
}

TEST(MeetingTest, ARankThatOnlyDoesNotComeIsWaitedForAsLongAsWasSaid) {
  Ranks ranks;
  std::barrier all(kRanks);
  std::vector<std::string> said(kRanks);
  ranks.run([&](int rank) {
    Meeting meeting(ranks.gather_of(rank), {}, {.patience = std::chrono::seconds(1)});
    (void)meeting.exchange(kRecord);
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
  int calls = 0;
  Meeting shrinks([&calls](const std::string& mine) {
    return ++calls == 1 ? std::vector{mine, "another" + mine.substr(7)} : std::vector{mine};
  });
  EXPECT_THAT(what_of(shrinks), HasSubstr("bytes of each rank"));
  Meeting not_mine([](const std::string& mine) { return std::vector{"?" + mine.substr(1)}; });
  EXPECT_THAT(what_of(not_mine), HasSubstr("has not returned what this rank gave"));
  Meeting throws(
      [](const std::string&) -> std::vector<std::string> { throw std::runtime_error("a socket"); });
  EXPECT_EQ(what_of(throws), "a socket");
}

}  // namespace
}  // namespace gradvane::agent::ranks
