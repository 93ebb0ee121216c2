#include "agent/ranks/node_board.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "agent/ranks/rank_record.hpp"

namespace gradvane::agent::ranks {
namespace {

using namespace std::chrono_literals;

/// What a rank tells in one exchange: the same character everywhere, so that half a record shows.
std::string record_of(int rank, int exchange) {
  return std::string(kRecordBytes, static_cast<char>('!' + (rank * 31 + exchange) % 90));
}

std::vector<std::string> records_of(int ranks, int exchange) {
  std::vector<std::string> records;
  for (int rank = 0; rank < ranks; ++rank) records.push_back(record_of(rank, exchange));
  return records;
}

std::vector<std::string> told_to(const NodeBoard& board) {
  std::vector<std::string> records;
  for (int rank = 0; rank < board.ranks(); ++rank) records.push_back(board.told_by(rank));
  return records;
}

/// The name of a board that is gone with the test.
class Board {
 public:
  explicit Board(int ranks) : name_(NodeBoard::make(ranks, kRecordBytes)) {}
  ~Board() { NodeBoard::remove(name_); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class NodeBoards : public testing::TestWithParam<int> {};

TEST_P(NodeBoards, EveryRankTakesTheRecordsOfAllInEachExchangeHoweverTheyAreDelayed) {
  const int ranks = GetParam();
  const Board board(ranks);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      NodeBoard mine(board.name(), rank, ranks, kRecordBytes);
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int exchange = 0; exchange < 1000; ++exchange) {
        if (random() % 50 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
        mine.tell(record_of(rank, exchange));
        if (!mine.wait(60s)) ++wrong;
        if (random() % 50 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
        if (told_to(mine) != records_of(ranks, exchange)) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, NodeBoards, testing::Values(1, 2, 3, 8));

TEST(NodeBoard, TakesWhatWasToldAlthoughTheOtherRankIsAheadByOne) {
  const Board board(2);
  NodeBoard first(board.name(), 0, 2, kRecordBytes);
  NodeBoard second(board.name(), 1, 2, kRecordBytes);
  first.tell(record_of(0, 0));
  second.tell(record_of(1, 0));
  ASSERT_TRUE(second.wait(0ms));
  second.tell(record_of(1, 1));
  ASSERT_TRUE(first.wait(0ms));
  EXPECT_EQ(told_to(first), records_of(2, 0));
}

TEST(NodeBoard, KeepsNoMoreThanThereIsPlaceFor) {
  const std::string name = NodeBoard::make(2, 4);
  NodeBoard first(name, 0, 2, 4);
  NodeBoard second(name, 1, 2, 4);
  NodeBoard::remove(name);
  first.tell("more than four");
  second.tell("");
  ASSERT_TRUE(second.wait(0ms));
  EXPECT_EQ(second.told_by(0), "more");
  EXPECT_EQ(second.told_by(1), std::string(4, '\0')) << "nothing of its neighbour";
}

TEST(NodeBoard, WaitsNoLongerThanItMayForARankThatDoesNotCome) {
  const Board board(2);
  NodeBoard mine(board.name(), 0, 2, kRecordBytes);
  const NodeBoard other(board.name(), 1, 2, kRecordBytes);
  mine.tell(record_of(0, 0));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(mine.wait(50ms));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 50ms);
  EXPECT_FALSE(mine.gone()) << "it lives, and is late";
}

TEST(NodeBoard, NamesARankWhoseProcessHasEnded) {
  const Board board(2);
  NodeBoard mine(board.name(), 0, 2, kRecordBytes);
  const pid_t child = fork();
  if (child == 0) {
    NodeBoard theirs(board.name(), 1, 2, kRecordBytes);
    theirs.tell(record_of(1, 0));
    pause();
    _exit(0);
  }
  mine.tell(record_of(0, 0));
  ASSERT_TRUE(mine.wait(60s));
  EXPECT_EQ(told_to(mine), records_of(2, 0));
  mine.tell(record_of(0, 1));
  EXPECT_FALSE(mine.gone());
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(mine.gone(), 1) << "ended, though no one has asked how";
  waitpid(child, nullptr, 0);
  EXPECT_EQ(mine.gone(), 1);
  EXPECT_FALSE(mine.wait(0ms));
}

TEST(NodeBoard, AWaitEndsAtASignal) {
  const Board board(2);
  NodeBoard mine(board.name(), 0, 2, kRecordBytes);
  struct sigaction action{};
  action.sa_handler = [](int) {};
  struct sigaction before{};
  sigaction(SIGALRM, &action, &before);
  mine.tell(record_of(0, 0));
  ualarm(20'000, 0);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(mine.wait(60s));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 50s);
  sigaction(SIGALRM, &before, nullptr);
}

TEST(NodeBoard, LeavesNothingBehindAndIsUsableAfterItsNameIsGone) {
  const std::string name = NodeBoard::make(1, kRecordBytes);
  const auto file = std::filesystem::path("/dev/shm") / name.substr(1);
  ASSERT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(std::filesystem::status(file).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  NodeBoard mine(name, 0, 1, kRecordBytes);
  NodeBoard::remove(name);
  EXPECT_FALSE(std::filesystem::exists(file));
  mine.tell(record_of(0, 5));
  EXPECT_TRUE(mine.wait(0ms));
  EXPECT_EQ(told_to(mine), records_of(1, 5));
}

TEST(NodeBoard, RefusesWhatIsNoBoardForSoManyRanks) {
  const Board board(2);
  EXPECT_THROW(NodeBoard(board.name(), 0, 3, kRecordBytes), std::runtime_error);
  EXPECT_THROW(NodeBoard(board.name(), 2, 2, kRecordBytes), std::invalid_argument);
  EXPECT_THROW(NodeBoard(board.name(), 0, 2, kRecordBytes + 1), std::runtime_error);
  EXPECT_THROW(NodeBoard("/gradvane-is-not-there", 0, 2, kRecordBytes), std::system_error);
  EXPECT_THROW((void)NodeBoard::make(0, kRecordBytes), std::invalid_argument);
  const auto file = std::filesystem::path("/dev/shm") / board.name().substr(1);
  const auto bytes = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, 0);
  std::filesystem::resize_file(file, bytes);
  EXPECT_THROW(NodeBoard(board.name(), 0, 2, kRecordBytes), std::runtime_error) << "all zero";
}

}  // namespace
}  // namespace gradvane::agent::ranks
