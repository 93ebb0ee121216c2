// Who serves the port of a node, in one process and in several.
#include "exporters/node/node_port.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <thread>

#include "exporters/files/private_directory.hpp"
#include "exporters/http/unix_socket.hpp"
#include "exporters/node/rank_sockets.hpp"
#include "tests/exporters/http/raw_client.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using testing::IsEmpty;
using testing::StartsWith;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class NodePortTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<NodePort> rank(std::int32_t number, std::uint16_t port = 0) const {
    return std::make_unique<NodePort>(
        EndpointOptions{.port = port, .run_directory = scratch_.path()}, number);
  }
  [[nodiscard]] bool answers(std::uint16_t port) const { return fakes::RawClient(port).is_open(); }
  /// As the agent's worker looks.
  static bool takes_over(NodePort& rank) {
    for (int i = 0; i < 1000 && !rank.look(); ++i) std::this_thread::sleep_for(10ms);
    return rank.is_serving();
  }
  [[nodiscard]] std::filesystem::path file(const std::string& end) const {
    return scratch_.path() / ("node." + word_of_node() + end);
  }

  fakes::Scratch scratch_;
};

/// A rank in a process of its own, which says the port that it serves.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<std::uint16_t()>& rank) {
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::uint16_t port = rank();
      (void)!::write(pipe[1], &port, sizeof port);
      while (true) ::pause();
    }
    (void)!::read(pipe[0], &port_, sizeof port_);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  ~OtherProcess() { kill(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

TEST_F(NodePortTest, TheFirstRankServesAndTheOthersHaveItsAddress) {
  const auto first = rank(3);
  const auto second = rank(0);
  const EndpointStart started = first->start();
  EXPECT_THAT(started.error, IsEmpty());
  EXPECT_TRUE(first->is_serving());
  EXPECT_TRUE(answers(started.port));
  const EndpointStart other = second->start();
  EXPECT_EQ(other.url, started.url);
  EXPECT_EQ(other.port, started.port);
  EXPECT_FALSE(second->is_serving());
  EXPECT_FALSE(second->look());
}

TEST_F(NodePortTest, RanksThatStartAtOnceAgreeOnOne) {
  constexpr int kRanks = 8;
  std::vector<std::unique_ptr<NodePort>> ranks;
  for (int i = 0; i < kRanks; ++i) ranks.push_back(rank(i));
  std::vector<EndpointStart> started(kRanks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kRanks; ++i)
      threads.emplace_back([&, i] { started[i] = ranks[i]->start(); });
  }
  int serving = 0;
  for (std::size_t i = 0; i < kRanks; ++i) {
    EXPECT_THAT(started[i].error, IsEmpty());
    EXPECT_EQ(started[i].url, started[0].url);
    serving += ranks[i]->is_serving() ? 1 : 0;
  }
  EXPECT_EQ(serving, 1);
}

TEST_F(NodePortTest, AnotherRankTakesTheSamePortWhenTheFirstEnds) {
  const auto first = rank(0);
  const auto second = rank(1);
  const std::uint16_t port = first->start().port;
  ASSERT_EQ(second->start().port, port);
  first->stop(1s);
  EXPECT_FALSE(first->is_serving());
  EXPECT_TRUE(takes_over(*second));
  EXPECT_TRUE(answers(port));
  EXPECT_FALSE(first->look()) << "it has ended";
}

TEST_F(NodePortTest, AnotherRankTakesTheSamePortWhenTheFirstIsKilled) {
  OtherProcess first([this] {
    static const auto kRank = rank(0);
    return kRank->start().port;
  });
  ASSERT_NE(first.port(), 0);
  const auto second = rank(1);
  ASSERT_EQ(second->start().port, first.port());
  EXPECT_FALSE(second->look()) << "the first one lives";
  first.kill();
  EXPECT_TRUE(takes_over(*second));
  EXPECT_TRUE(answers(first.port()));
}

/// Workers of a data loader are forked, and may live longer than the rank.
TEST_F(NodePortTest, AForkedChildOfTheFirstDoesNotKeepThePort) {
  std::array<int, 2> alive{};
  ASSERT_EQ(::pipe(alive.data()), 0);
  OtherProcess first([&] {
    static const auto kRank = rank(0);
    const std::uint16_t port = kRank->start().port;
    if (::fork() == 0) {
      kRank->close_in_child();  // the agent's fork handler calls it
      ::close(alive[1]);
      char byte = 0;
      (void)!::read(alive[0], &byte, 1);  // until the test ends
      ::_exit(0);
    }
    return port;
  });
  const auto second = rank(1);
  ASSERT_EQ(second->start().port, first.port());
  first.kill();
  EXPECT_TRUE(takes_over(*second));
  ::close(alive[1]);
  ::close(alive[0]);
}

TEST_F(NodePortTest, AFileThatADeadRankLeftIsNotBelieved) {
  std::uint16_t old_port = 0;
  {
    const OtherProcess dead([this] {
      static const auto kRank = rank(0);
      return kRank->start().port;
    });
    old_port = dead.port();
  }
  ASSERT_TRUE(std::filesystem::exists(file(".json")));
  const auto later = rank(0);
  const EndpointStart started = later->start();
  EXPECT_THAT(started.error, IsEmpty());
  EXPECT_TRUE(later->is_serving());
  EXPECT_NE(started.port, 0);
  EXPECT_NE(started.port, old_port) << "any free port was asked for, and not that one";
}

/// The others have told Prometheus the address already.
TEST_F(NodePortTest, ARankThatComesLateKeepsThePortOfThoseThatAreThere) {
  OtherProcess first([this] {
    static const auto kRank = rank(0);
    return kRank->start().port;
  });
  const auto directory = open_named_directory(scratch_.path(), ::geteuid(), Missing::stays);
  const OwnDescriptor other(
      listen_on_unix(directory.descriptor.get(), rank_socket(1, word_of_node()), 8));
  ASSERT_TRUE(other.is_open());
  first.kill();
  const auto late = rank(2);
  EXPECT_EQ(late->start().port, first.port());
  EXPECT_TRUE(late->is_serving());
}

TEST_F(NodePortTest, APortThatIsTakenByAnotherRunIsMovedAtTheStartOnly) {
  const fakes::Scratch other_directory;
  NodePort other(EndpointOptions{.port = 0, .run_directory = other_directory.path()}, 0);
  const std::uint16_t taken = other.start().port;
  const auto first = rank(0, taken);
  const EndpointStart started = first->start();
  EXPECT_GT(started.port, taken);
  const auto second = rank(1, taken);
  EXPECT_EQ(second->start().port, started.port);
  other.stop(1s);
  first->stop(1s);
  EXPECT_TRUE(takes_over(*second));
  EXPECT_TRUE(answers(started.port));
  EXPECT_FALSE(answers(taken));
}

/// A unix socket that is named by the option: the "port" of ranks that may have none.
TEST_F(NodePortTest, AUnixSocketIsSharedAndTakenOverAsAPortIs) {
  const std::string address = "unix:" + (scratch_.path() / "shared.sock").string();
  const auto listens = [&](std::int32_t number) {
    return std::make_unique<NodePort>(
        EndpointOptions{.address = address, .run_directory = scratch_.path()}, number);
  };
  OtherProcess first([&] {
    static const auto kRank = listens(0);
    return static_cast<std::uint16_t>(kRank->start().url == address ? 1 : 0);
  });
  ASSERT_EQ(first.port(), 1);
  const auto second = listens(1);
  EXPECT_EQ(second->start().url, address);
  EXPECT_FALSE(second->is_serving());
  EXPECT_TRUE(fakes::RawClient(scratch_.path() / "shared.sock").is_open());
  first.kill();
  EXPECT_FALSE(fakes::RawClient(scratch_.path() / "shared.sock").is_open());
  EXPECT_TRUE(takes_over(*second));
  EXPECT_TRUE(fakes::RawClient(scratch_.path() / "shared.sock").is_open());
  second->stop(1s);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
}

TEST_F(NodePortTest, NothingIsLeftBehindAtTheEnd) {
  const auto first = rank(0);
  const auto second = rank(1);
  (void)first->start();
  (void)second->start();
  first->stop(1s);
  second->stop(1s);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
}

TEST_F(NodePortTest, FilesAndSocketsAreForThisUserOnly) {
  const auto first = rank(0);
  (void)first->start();
  const auto directory = open_named_directory(scratch_.path(), ::geteuid(), Missing::stays);
  const OwnDescriptor socket(listen_on_unix(directory.descriptor.get(), first->socket(), 8));
  ASSERT_TRUE(socket.is_open());
  for (const auto& path : {file(".lock"), file(".json"), scratch_.path() / first->socket()}) {
    struct stat status{};
    ASSERT_EQ(::lstat(path.c_str(), &status), 0) << path;
    EXPECT_EQ(status.st_mode & 0777U, 0600U) << path;
  }
}

TEST_F(NodePortTest, ADirectoryThatIsNotThereIsAnErrorAndNotAnEnd) {
  NodePort nowhere(EndpointOptions{.port = 0, .run_directory = scratch_.path() / "no"}, 0);
  EXPECT_NE(nowhere.start().error, "");
  EXPECT_FALSE(nowhere.look());
  nowhere.stop(1s);
}

TEST_F(NodePortTest, APathLongerThanASocketsMayBeIsNoObstacle) {
  const auto deep = scratch_.path() / std::string(100, 'd') / std::string(100, 'e');
  std::filesystem::create_directories(deep);
  const auto directory = open_named_directory(deep, ::geteuid(), Missing::stays);
  const OwnDescriptor socket(listen_on_unix(directory.descriptor.get(), "rank0.sock", 8));
  EXPECT_TRUE(socket.is_open());
  EXPECT_TRUE(OwnDescriptor(connect_to_unix(directory.descriptor.get(), "rank0.sock")).is_open());
}

}  // namespace
}  // namespace gradvane::exporters
