// What the server does to those who do not mean well, or are broken.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "exporters/http/http_server.hpp"
#include "tests/exporters/http/raw_client.hpp"

namespace gradvane::exporters {
namespace {

using fakes::get;
using fakes::RawClient;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kGoodRequest = "GET /short HTTP/1.1\r\nHost: x\r\n\r\n";

// A scrape is quick when it waits for nobody's deadline, however long a busy machine takes for it.
constexpr auto kLong = 60s;
constexpr auto kQuick = 20s;

class Hardening : public testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    std::map<std::string, HttpHandler> routes;
    routes["/short"] = [](const HttpRequest&) { return HttpResponse{.body = "short\n"}; };
    routes["/huge"] = [](const HttpRequest&) {
      return HttpResponse{.body = std::string(16 << 20, 'x')};
    };
    options.dropped = [this](HttpDrop drop) { ++drops_[static_cast<std::size_t>(drop)]; };
    options.answered = [this](int) { ++answers_; };
    server_ = std::make_unique<HttpServer>(std::move(routes), std::move(options));
    port_ = server_->start("127.0.0.1", 0).port;
    ASSERT_GT(port_, 0);
  }
  /// The server counts after it has closed, so the last one may still be on its way.
  void expect_drops(HttpDrop reason, int expected) const {
    const std::atomic<int>& drops = drops_[static_cast<std::size_t>(reason)];
    const auto deadline = Clock::now() + kQuick;
    while (drops < expected && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(drops, expected);
  }
  void expect_quick_answer() const {
    const auto begin = Clock::now();
    EXPECT_EQ(get(port_, "/short").status, 200);
    EXPECT_LT(Clock::now() - begin, kQuick);
  }

  void eventually_answers() const {
    const auto deadline = Clock::now() + kQuick;
    int status = get(port_, "/short").status;
    for (; status != 200 && Clock::now() < deadline; status = get(port_, "/short").status)
      std::this_thread::sleep_for(20ms);
    EXPECT_EQ(status, 200);
  }

  std::array<std::atomic<int>, 3> drops_{};
  std::atomic<int> answers_ = 0;
  std::uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;  // goes first: its thread counts in the others
};

TEST_F(Hardening, HalfOpenClientsDoNotDelayAScrape) {
  start({.header_deadline = kLong});
  RawClient silent(port_);
  RawClient half(port_);
  half.send("GET /short HTTP/1.1\r\nHost:");
  for (int i = 0; i < 20; ++i) expect_quick_answer();
}

TEST_F(Hardening, AClientThatDripsItsHeadersIsCutOffAtTheDeadline) {
  start({.header_deadline = 300ms});
  const auto begin = Clock::now();
  RawClient drip(port_);
  bool is_cut = false;
  while (!is_cut && Clock::now() - begin < kQuick) {
    drip.send("X");
    is_cut = drip.is_closed_within(50ms);
  }
  EXPECT_TRUE(is_cut);
  EXPECT_GE(Clock::now() - begin, 250ms);
  expect_drops(HttpDrop::header_deadline, 1);
}

TEST_F(Hardening, AConnectionThatNeverSpeaksIsClosedAtTheHeaderDeadline) {
  start({.header_deadline = 200ms, .idle_deadline = 60s});
  RawClient silent(port_);
  EXPECT_TRUE(silent.is_closed_within(kQuick));
}

TEST_F(Hardening, AnIdleConnectionIsClosedAndOneInUseIsNot) {
  constexpr auto kIdle = 1s;
  start({.header_deadline = kLong, .idle_deadline = kIdle});
  RawClient idle(port_);
  idle.send(kGoodRequest);
  EXPECT_EQ(idle.receive().status, 200);
  const auto begin = Clock::now();
  std::optional<RawClient> busy(port_);
  auto spoke = Clock::now();
  int closed_in_use = 0;
  while (Clock::now() - begin < 2 * kIdle) {
    const bool answered = busy->send(kGoodRequest) && busy->receive().status == 200;
    const auto now = Clock::now();
    if (!answered) {
      closed_in_use += now - spoke < kIdle ? 1 : 0;  // else this thread had no core for so long
      busy.emplace(port_);
    }
    spoke = now;
    std::this_thread::sleep_for(60ms);
  }
  EXPECT_EQ(closed_in_use, 0);
  EXPECT_TRUE(idle.is_closed_within(kQuick));
  expect_drops(HttpDrop::header_deadline, 0);
}

TEST_F(Hardening, ASlowReaderIsCutOff) {
  start({.write_deadline = 500ms});
  RawClient slow(port_);
  slow.set_receive_buffer(4096);
  slow.send("GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
  expect_drops(HttpDrop::write_deadline, 1);
  EXPECT_TRUE(slow.is_closed_within(kQuick));
}

TEST_F(Hardening, ASlowReaderDelaysNobody) {
  start({.write_deadline = kLong});
  RawClient slow(port_);
  slow.set_receive_buffer(4096);
  slow.send("GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    expect_quick_answer();
    std::this_thread::sleep_for(20ms);
  }
  expect_drops(HttpDrop::write_deadline, 0);
}

TEST_F(Hardening, RefusesEveryKindOfBody) {
  start();
  const std::pair<const char*, int> cases[] = {
      {"GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 413},
      {"POST /short HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 413},
      {"GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413},
      {"GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", 413},
      {"GET /short HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"GET /short HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400},
      {"GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: nonsense\r\n\r\n", 400},
      {"GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", 400},
      {"GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
  };
  for (const auto& [request, status] : cases) {
    RawClient client(port_);
    client.send(request);
    const auto answer = client.receive();
    EXPECT_EQ(answer.status, status) << request;
    EXPECT_EQ(answer.fields.at("connection"), "close") << request;
    EXPECT_TRUE(client.is_closed_within(kQuick)) << request;
  }
  EXPECT_EQ(get(port_, "/short", "Content-Length: 0\r\n").status, 200);
}

TEST_F(Hardening, WhatFollowsARefusedBodyIsNotReadAsARequest) {
  start();
  RawClient client(port_);
  client.send("GET /short HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" +
              std::string(kGoodRequest));
  EXPECT_EQ(client.receive().status, 413);
  EXPECT_EQ(client.receive().status, 0);
  EXPECT_EQ(answers_, 1);
}

TEST_F(Hardening, ABodyThatGoesOnAndOnIsNotReadToItsEnd) {
  start();
  RawClient client(port_);
  client.send("POST /short HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
  const std::string piece(1 << 16, 'x');
  int pieces = 0;
  while (pieces < 2000 && client.send(piece)) ++pieces;
  EXPECT_LT(pieces, 2000);
  expect_quick_answer();
}

TEST_F(Hardening, RefusesHeadersThatAreTooLong) {
  start();
  const std::string filler(9000, 'x');
  for (const std::string& request : {"GET /" + filler + " HTTP/1.1\r\nHost: x\r\n\r\n",
                                     "GET /short HTTP/1.1\r\nHost: x\r\nX: " + filler + "\r\n\r\n",
                                     "GET /short HTTP/1.1\r\n" + std::string(100000, 'y')}) {
    RawClient client(port_);
    client.send(request);
    EXPECT_EQ(client.receive().status, 431) << request.substr(0, 20);
    EXPECT_TRUE(client.is_closed_within(kQuick));
  }
  EXPECT_EQ(get(port_, "/short", "X: " + std::string(7000, 'x') + "\r\n").status, 200);
}

TEST_F(Hardening, RefusesWhatIsNotHttp) {
  start();
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string("hello\r\n\r\n"),
        std::string("GET /short\r\n\r\n"), std::string("GET  /short HTTP/1.1\r\n\r\n"),
        std::string("GET /short HTTP/9.9\r\n\r\n"), std::string(200, '\0')}) {
    RawClient client(port_);
    client.send(bytes);
    client.shut_down_sending();
    const int status = client.receive().status;
    EXPECT_TRUE(status == 400 || status == 0) << bytes << " " << status;
    EXPECT_TRUE(client.is_closed_within(kQuick)) << bytes;
  }
  expect_quick_answer();
}

TEST_F(Hardening, SurvivesRandomBytesAndRandomlyBrokenRequests) {
  start({.header_deadline = 2s});
  std::mt19937 random(3);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  for (int i = 0; i < 500; ++i) {
    std::string bytes(kGoodRequest);
    if (i % 2 == 0) {
      for (std::size_t n = below(6) + 1; n > 0; --n) {
        bytes[below(bytes.size())] = static_cast<char>(random());
      }
    } else {
      bytes.resize(below(300));
      for (char& c : bytes) c = static_cast<char>(random());
    }
    RawClient client(port_);
    client.send(bytes);
    client.shut_down_sending();
    EXPECT_TRUE(client.is_closed_within(kQuick));
  }
  eventually_answers();
}

TEST_F(Hardening, TenThousandConnectionsLeaveNothingBehind) {
  start();
  expect_quick_answer();
  const auto descriptors = [] {
    int count = 0;
    for (int i = 0; i < 1024; ++i) count += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const int before = descriptors();
  for (int i = 0; i < 10000; ++i) {
    RawClient client(port_);
    ASSERT_TRUE(client.is_open()) << i;
    if (i % 3 == 0) client.send(kGoodRequest.substr(0, 10));
    if (i % 3 == 1) client.send(kGoodRequest);
    client.reset();
  }
  // On a busy machine the last of them still stand in the kernel's queue, in front of the next one:
  // only when that is answered have all others been accepted.
  eventually_answers();
  const auto deadline = Clock::now() + kQuick;
  int left = descriptors();
  for (; left > before && Clock::now() < deadline; left = descriptors())
    std::this_thread::sleep_for(20ms);
  EXPECT_LE(left, before);
  expect_quick_answer();
}

TEST_F(Hardening, AResetInTheMiddleOfAnAnswerDoesNoHarm) {
  start();
  for (int i = 0; i < 3; ++i) {
    RawClient client(port_);
    client.set_receive_buffer(4096);
    client.send("GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
    std::this_thread::sleep_for(5ms);
    client.reset();
  }
  EXPECT_EQ(get(port_, "/short").status, 200);  // behind large answers that are still being made
  expect_quick_answer();
}

TEST_F(Hardening, ComesBackWhenDescriptorsRanOut) {
  start();
  expect_quick_answer();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // The client's own descriptor is made first; then there is none left for the server to accept with.
  RawClient waiting(port_);
  waiting.send(kGoodRequest);
  ASSERT_EQ(waiting.receive().status, 200);
  const int lowest = ::dup(0);
  ::close(lowest);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  RawClient starved(port_);  // takes the last one
  const rusage begin = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage;
  }();
  std::this_thread::sleep_for(500ms);
  rusage end{};
  ::getrusage(RUSAGE_SELF, &end);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto milliseconds = [](const timeval& time) {
    return time.tv_sec * 1000 + time.tv_usec / 1000;
  };
  EXPECT_LT(milliseconds(end.ru_utime) + milliseconds(end.ru_stime) - milliseconds(begin.ru_utime) -
                milliseconds(begin.ru_stime),
            200)
      << "it must pause, not ask again at once";
  starved.send(kGoodRequest);
  EXPECT_EQ(starved.receive(true, 5s).status, 200);
}

}  // namespace
}  // namespace gradvane::exporters
