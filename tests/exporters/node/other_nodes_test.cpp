// Questions to the nodes of other machines: when they are asked, and what a bad one can do.
#include "exporters/node/other_nodes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/exporters/alert_push/answering_server.hpp"

namespace gradvane::exporters {
namespace {

using fakes::AnsweringServer;
using fakes::Manner;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Clock = std::chrono::steady_clock;

/// Threads of this process that ask nodes.
int threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (name == "gradvane-nodes") ++count;
  }
  return count;
}

class OtherNodesTest : public testing::Test {
 protected:
  static OtherNodes::Settings quick() {
    return {.token = "secret-token-of-16",
            .every = 10ms,
            .longest = 40ms,
            .deadline = 300ms,
            .looked_at = 10s};
  }
  /// Looks until the server's node has been asked.
  OtherNodes::Answer answer_of(OtherNodes& nodes) const {
    for (int i = 0; i < 2000; ++i) {
      const auto known = nodes.look({server_.url()});
      if (const auto found = known.find(server_.url()); found != known.end()) return found->second;
      std::this_thread::sleep_for(5ms);
    }
    ADD_FAILURE() << "it was never asked";
    return {};
  }

  AnsweringServer server_{{.body = "its ranks"}};
};

TEST_F(OtherNodesTest, ANodeIsAskedForItsOwnRanksWithTheToken) {
  OtherNodes nodes(quick());
  const auto answer = answer_of(nodes);
  EXPECT_TRUE(answer.is_there);
  EXPECT_EQ(answer.ranks, "its ranks");
  const auto received = server_.received();
  EXPECT_THAT(received[0].head, HasSubstr("GET /api/v1/ranks/here HTTP/1.1\r\n"));
  EXPECT_THAT(received[0].head, HasSubstr("Authorization: Bearer secret-token-of-16"));
  EXPECT_THAT(received[0].head,
              HasSubstr("Host: 127.0.0.1:" + std::to_string(server_.port()) + "\r\n"));
}

TEST_F(OtherNodesTest, NobodyIsAskedAndThereIsNoThreadBeforeSomebodyLooks) {
  OtherNodes nodes(quick());
  EXPECT_EQ(threads(), 0);
  EXPECT_THAT(nodes.look({}), IsEmpty());
  EXPECT_EQ(threads(), 0);
  EXPECT_THAT(nodes.look({"https://127.0.0.1:1", "unix:/a", "http://", "http://a:b"}), IsEmpty());
  EXPECT_EQ(threads(), 0) << "none of these can be asked";
  EXPECT_THAT(server_.received(), IsEmpty());
}

TEST_F(OtherNodesTest, AWhileAfterTheLastLookNobodyIsAskedAnyMoreAndOldAnswersAreForgotten) {
  auto settings = quick();
  settings.looked_at = 100ms;
  OtherNodes nodes(settings);
  (void)answer_of(nodes);
  std::this_thread::sleep_for(400ms);
  const std::size_t asked = server_.received().size();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(server_.received().size(), asked);
  EXPECT_THAT(nodes.look({server_.url()}), IsEmpty()) << "it is old";
  EXPECT_TRUE(answer_of(nodes).is_there);
}

TEST_F(OtherNodesTest, ABadNodeDelaysTheOthersByItsTimeLimitAtMost) {
  AnsweringServer bad;
  for (const auto& behaviour : {fakes::Behaviour{.manner = Manner::silent},
                                {.manner = Manner::closes},
                                {.manner = Manner::drips},
                                {.manner = Manner::floods},
                                {.status = 401},
                                {.status = 503}}) {
    bad.behave(behaviour);
    OtherNodes nodes(quick());
    const auto until = Clock::now() + 10s;
    std::map<std::string, OtherNodes::Answer> known;
    while (known.size() < 2 && Clock::now() < until) {
      known = nodes.look({bad.url(), server_.url()});
      std::this_thread::sleep_for(5ms);
    }
    ASSERT_EQ(known.size(), 2U) << static_cast<int>(behaviour.manner);
    EXPECT_FALSE(known.at(bad.url()).is_there) << static_cast<int>(behaviour.manner);
    EXPECT_THAT(known.at(bad.url()).ranks, IsEmpty());
    EXPECT_TRUE(known.at(server_.url()).is_there);
  }
}

TEST_F(OtherNodesTest, ANodeThatCannotEvenBeAskedKeepsNoOtherWaiting) {
  auto settings = quick();
  settings.resolve = [](const std::string& host) -> std::vector<std::string> {
    if (host == "odd") throw std::bad_alloc();
    return {host};
  };
  OtherNodes nodes(settings);
  const auto until = Clock::now() + 10s;
  while (server_.received().size() < 3 && Clock::now() < until) {
    (void)nodes.look({"http://odd:1", server_.url()});
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GE(server_.received().size(), 3U);
}

TEST_F(OtherNodesTest, TheEndWaitsForNoAnswerAndLeavesNoThreadAndNoDescriptor) {
  // Of Asio: the socket's other end is the server's, in this process.
  const auto descriptors = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto to = std::filesystem::read_symlink(entry.path(), gone).string();
      if (to.starts_with("anon_inode:")) ++count;
    }
    return count;
  };
  const auto before = descriptors();
  server_.behave({.manner = Manner::silent});
  auto settings = quick();
  settings.deadline = 60s;
  OtherNodes nodes(settings);
  (void)nodes.look({server_.url()});
  ASSERT_TRUE(server_.wait_for(1));
  EXPECT_GT(descriptors(), before) << "the question is under way";
  const auto began = Clock::now();
  nodes.finish(50ms);
  EXPECT_LT(Clock::now() - began, 5s) << "a minute, if it waited";
  EXPECT_EQ(threads(), 0);
  EXPECT_THAT(nodes.look({server_.url()}), IsEmpty());
  EXPECT_EQ(descriptors(), before);
}

TEST_F(OtherNodesTest, AHostWhoseAddressesAreNotFoundHoldsNothingUp) {
  std::atomic<bool> is_over = false;
  auto settings = quick();
  settings.resolve = [&](const std::string&) {
    while (!is_over) std::this_thread::sleep_for(1ms);
    return std::vector<std::string>();
  };
  {
    OtherNodes nodes(settings);
    EXPECT_THAT(nodes.look({"http://somewhere:9464"}), IsEmpty());
    const auto began = Clock::now();
    nodes.finish(20ms);
    EXPECT_LT(Clock::now() - began, 5s);
  }
  is_over = true;
  for (int i = 0; i < 400 && threads() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(threads(), 0) << "it was left behind, and ends by itself";
}

}  // namespace
}  // namespace gradvane::exporters
