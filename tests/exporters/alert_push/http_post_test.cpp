#include "exporters/alert_push/http_post.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "tests/exporters/alert_push/answering_server.hpp"

namespace gradvane::exporters {
namespace {

using fakes::AnsweringServer;
using fakes::Manner;
using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using Clock = HttpPost::Clock;

std::vector<std::string> no_addresses(const std::string&) { return {}; }

class Post : public testing::Test {
 protected:
  HttpAnswer send(const std::string& body = "[]", std::chrono::milliseconds time = 20s) {
    return post_.send(body, Clock::now() + time);
  }

  AnsweringServer server_;
  HttpPost post_{parse_alert_url(server_.url() + "/am"), no_addresses};  // an address needs none
};

TEST_F(Post, SendsARequestThatOthersUnderstand) {
  const std::string body(300000, 'x');
  const HttpAnswer answer = send(body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.is_taken());
  EXPECT_EQ(answer.error, "");
  const auto received = server_.received();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].body, body);
  EXPECT_THAT(received[0].head, HasSubstr("POST /am/api/v2/alerts HTTP/1.1\r\n"));
  EXPECT_THAT(received[0].head, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(received[0].head, HasSubstr("Content-Length: 300000"));
  EXPECT_THAT(received[0].head, HasSubstr("Connection: close"));
  EXPECT_THAT(received[0].head,
              HasSubstr("Host: 127.0.0.1:" + std::to_string(server_.port()) + "\r\n"));
}

TEST_F(Post, CanBeUsedAgain) {
  for (int i = 0; i < 5; ++i) {
    server_.behave({.status = i % 2 == 0 ? 200 : 500});
    EXPECT_EQ(send().status, i % 2 == 0 ? 200 : 500);
  }
  EXPECT_EQ(server_.received().size(), 5U);
}

TEST_F(Post, TellsWhatTheOtherSideDidNotLike) {
  server_.behave({.status = 400, .body = "\"start time\x01\n\xff must be\"\n"});
  const HttpAnswer answer = send();
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(answer.is_refused());
  EXPECT_THAT(answer.error, HasSubstr("answered 400: \"start time    must be\""));
}

TEST_F(Post, KnowsWhatIsWorthAnotherTry) {
  for (const int status : {500, 503, 408, 429}) {
    server_.behave({.status = status});
    const HttpAnswer answer = send();
    EXPECT_FALSE(answer.is_taken() || answer.is_refused()) << status;
    EXPECT_THAT(answer.error, testing::EndsWith("answered " + std::to_string(status)));
  }
  for (const int status : {301, 401, 404, 422}) {
    server_.behave({.status = status});
    EXPECT_TRUE(send().is_refused()) << status;
  }
  server_.behave({.status = 202});
  EXPECT_TRUE(send().is_taken());
}

TEST_F(Post, TakesAConnectionThatClosesEarlyForNoAnswer) {
  server_.behave({.manner = Manner::closes});
  const HttpAnswer answer = send();
  EXPECT_EQ(answer.status, 0);
  EXPECT_FALSE(answer.is_refused());
  EXPECT_THAT(answer.error, HasSubstr("no answer"));
}

TEST_F(Post, TakesWhatIsNoHttpForNoAnswer) {
  server_.behave({.status = 99999});
  EXPECT_EQ(send().status, 0);
}

TEST_F(Post, ReadsALittleOfAnAnswerWithoutEnd) {
  server_.behave({.manner = Manner::floods, .status = 500});
  const HttpAnswer answer = send("[]", 1h);  // no deadline would end it
  EXPECT_EQ(answer.status, 500);
  EXPECT_LT(answer.error.size(), 1000U);
  EXPECT_THAT(answer.error, HasSubstr("xxxx"));
  server_.behave({.manner = Manner::floods, .status = 200});
  EXPECT_TRUE(send("[]", 1h).is_taken());
}

TEST_F(Post, EndsAtItsDeadlineWhereNothingComes) {
  server_.behave({.manner = Manner::silent});
  const HttpAnswer answer = send("[]", 2s);  // long enough to get so far, on any machine
  EXPECT_EQ(answer.status, 0);
  EXPECT_THAT(answer.error, HasSubstr("no answer"));
}

TEST_F(Post, EndsAtItsDeadlineHoweverLongSomethingDrips) {
  server_.behave({.manner = Manner::drips});
  EXPECT_EQ(send("[]", 200ms).status, 0);
}

TEST_F(Post, WaitsAsLongAsItMayUntilSomebodyIsInAHurry) {
  server_.behave({.manner = Manner::silent});
  auto sent = std::async(std::launch::async, [&] { return send("[]", 1h); });
  ASSERT_TRUE(server_.wait_for(1));
  EXPECT_EQ(sent.wait_for(300ms), std::future_status::timeout);  // else the bound shows nothing
  post_.hurry(Clock::now());
  ASSERT_EQ(sent.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(sent.get().status, 0);
}

TEST_F(Post, TriesNothingWhenTimeIsUp) {
  EXPECT_EQ(send("[]", -1s).status, 0);
  EXPECT_TRUE(server_.received().empty());
}

TEST_F(Post, TriesTheAddressesOneAfterTheOther) {
  HttpPost post(parse_alert_url("http://alerts:" + std::to_string(server_.port())),
                [](const std::string& host) {
                  EXPECT_EQ(host, "alerts");
                  return std::vector<std::string>{"::1", "not an address", "127.0.0.1"};
                });
  EXPECT_TRUE(post.send("[]", Clock::now() + 20s).is_taken());
}

TEST_F(Post, AsksForAddressesAgainOnlyWhereTheyWereNoGood) {
  int asked = 0;
  HttpPost post(parse_alert_url("http://alerts:" + std::to_string(server_.port())),
                [&](const std::string&) {
                  // The first time nothing listens there: 127.0.0.2 is not where the server is.
                  return std::vector<std::string>{++asked == 1 ? "127.0.0.2" : "127.0.0.1"};
                });
  EXPECT_THAT(post.send("[]", Clock::now() + 20s).error, HasSubstr("cannot connect to alerts:"));
  EXPECT_TRUE(post.send("[]", Clock::now() + 20s).is_taken());
  EXPECT_TRUE(post.send("[]", Clock::now() + 20s).is_taken());
  EXPECT_EQ(asked, 2);
}

TEST_F(Post, SaysWhichHostHasNoAddress) {
  HttpPost post(parse_alert_url("http://nowhere:9093"), no_addresses);
  EXPECT_THAT(post.send("[]", Clock::now() + 20s).error, HasSubstr("no address of nowhere"));
}

TEST(ResolveHost, FindsThisMachineAndNoneOfThatName) {
  EXPECT_THAT(resolve_host("localhost"), testing::Contains("127.0.0.1"));
  EXPECT_THAT(resolve_host("no-such-host.invalid"), testing::IsEmpty());
}

TEST_F(Post, LeavesNoSocketToProgramsThatTheTrainingStarts) {
  server_.behave({.manner = Manner::silent});
  auto sent = std::async(std::launch::async, [&] { return send("[]", 1h); });
  ASSERT_TRUE(server_.wait_for(1));
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!std::filesystem::read_symlink(entry, gone).string().starts_with("socket:")) continue;
    const int descriptor = std::stoi(entry.path().filename());
    EXPECT_NE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
    ++sockets;
  }
  EXPECT_GE(sockets, 3);  // the server's two, and ours
  post_.hurry(Clock::now());
  EXPECT_FALSE(sent.get().is_taken());
}

}  // namespace
}  // namespace gradvane::exporters
