// Many clients at once, and clients that take their time: a scrape gets through, and memory stays bounded.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
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

constexpr std::string_view kScrape = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr auto kLong = 600s;  ///< no deadline helps
constexpr auto kQuick = 20s;
constexpr std::size_t kHuge = 16 << 20;

class Crowd : public testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    std::map<std::string, HttpHandler> routes;
    routes["/metrics"] = [this](const HttpRequest&) {
      return HttpResponse{.body = std::string(metrics_size_, 'm'), .goes_first = true};
    };
    routes["/huge"] = [](const HttpRequest&) {
      return HttpResponse{.body = std::string(kHuge, 'x')};
    };
    routes["/small"] = [](const HttpRequest&) { return HttpResponse{.body = "small\n"}; };
    routes["/stream"] = [this](const HttpRequest&) {
      return HttpResponse{.content_type = "text/event-stream", .stream = [this] {
                            ++parts_;
                            return std::string("data: x\n\n");
                          }};
    };
    options.header_deadline = options.idle_deadline = options.write_deadline = kLong;
    options.dropped = [this](HttpDrop drop) { drops_ += drop == HttpDrop::limit ? 1 : 0; };
    server_ = std::make_unique<HttpServer>(std::move(routes), std::move(options));
    port_ = server_->start("127.0.0.1", 0).port;
    ASSERT_GT(port_, 0);
  }
  [[nodiscard]] RawClient ask(std::string_view request) const {
    RawClient client(port_);
    client.send(request);
    return client;
  }
  /// Has been answered, and keeps its connection.
  [[nodiscard]] RawClient idle() const {
    RawClient client = ask(kScrape);
    EXPECT_EQ(client.receive().status, 200);
    return client;
  }
  [[nodiscard]] int scrapes_that_fail(int count) const {
    int failed = 0;
    for (int i = 0; i < count; ++i) failed += get(port_, "/metrics").status == 200 ? 0 : 1;
    return failed;
  }
  static bool wait_until(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + kQuick;
    while (!is_so() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(5ms);
    return is_so();
  }

  std::atomic<std::size_t> metrics_size_ = 100;
  std::atomic<int> drops_ = 0;
  std::atomic<int> parts_ = 0;
  std::uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;  // goes first: its thread counts in the others
};

TEST_F(Crowd, ScrapesGetThroughWhereAllConnectionsAreIdle) {
  start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 64; ++i) clients.push_back(idle());
  EXPECT_EQ(drops_, 0) << "there are as many as there may be, and none is closed without need";
  EXPECT_EQ(scrapes_that_fail(20), 0);
  EXPECT_GE(drops_, 1) << "the 65th found a free place: this test shows nothing";
  EXPECT_TRUE(clients.front().is_closed_within(kQuick)) << "it was idle for longest";
  clients.back().send(kScrape);
  EXPECT_EQ(clients.back().receive().status, 200) << "it was idle for a moment only";
}

TEST_F(Crowd, ScrapesGetThroughWhereAllConnectionsSaidHalfARequestOrNothing) {
  start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 64; ++i) clients.push_back(ask(i % 2 == 0 ? kScrape.substr(0, 9) : ""));
  EXPECT_EQ(scrapes_that_fail(20), 0);
}

TEST_F(Crowd, ScrapesGetThroughWhereNoneOfTheOthersReadsItsAnswer) {
  start({.max_connections = 4});
  std::vector<RawClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back(port_);
    clients.back().set_receive_buffer(4096);
    clients.back().send("GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  EXPECT_EQ(scrapes_that_fail(20), 0);
}

TEST_F(Crowd, AnAnswerAndAStreamOutliveThoseThatAreIdleOrSilent) {
  start({.max_connections = 6, .stream_pause = 5ms});
  // No kernel holds all of that, so it is in the middle of its answer until it reads.
  RawClient reader = ask("GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n");
  RawClient viewer = ask("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(wait_until([&] { return parts_ > 2; }));
  RawClient silent = ask("");
  RawClient half = ask(kScrape.substr(0, 9));
  std::vector<RawClient> idlers;
  for (int i = 0; i < 2; ++i) idlers.push_back(idle());
  std::vector<RawClient> more;
  for (int i = 0; i < 20; ++i) more.push_back(idle());
  for (RawClient& client : idlers) EXPECT_TRUE(client.is_closed_within(kQuick));
  half.send(kScrape.substr(9));
  EXPECT_EQ(half.receive().status, 200) << "there were idle ones to close";
  EXPECT_EQ(reader.receive().body.size(), kHuge);
  const int before = parts_;
  EXPECT_TRUE(wait_until([&] { return parts_ > before + 3; })) << "the stream was closed";
  EXPECT_EQ(drops_, 20);
}

// ---- bytes in flight ------------------------------------------------------------------------------

// A sanitizer keeps what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

class SlowReaders : public Crowd {
 protected:
  /// How many of them are given the answer; they do not read it.
  int refused_of(int count) {
    int refused = 0;
    for (int i = 0; i < count; ++i) {
      readers_.emplace_back(port_);
      readers_.back().set_receive_buffer(4096);
      readers_.back().send("GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n");
      const auto answer = readers_.back().receive(false);
      if (answer.status != 503) continue;
      EXPECT_EQ(answer.fields.at("retry-after"), "5");
      ++refused;
    }
    return refused;
  }
  std::vector<RawClient> readers_;
};

TEST_F(SlowReaders, LargeAnswersAreRefusedWhereTooMuchWaitsAndAScrapeIsNot) {
  start();
  const std::size_t before = resident_bytes();
  EXPECT_EQ(refused_of(40), 37) << "three answers of 16 MiB fit into three quarters of 64 MiB";
  if (!kIsSanitized) {
    EXPECT_LT(resident_bytes() - before, 160U << 20);
  }
  EXPECT_EQ(get(port_, "/small").status, 200);
  EXPECT_EQ(scrapes_that_fail(5), 0);
  metrics_size_ = 4 << 20;
  EXPECT_EQ(scrapes_that_fail(5), 0) << "they have room of their own";
  readers_.clear();
  EXPECT_TRUE(wait_until([&] { return get(port_, "/huge").status == 200; }));
}

/// The same with a limit that is never reached: without it the memory would grow with each reader.
TEST_F(SlowReaders, WithoutTheLimitEachOfThemHoldsItsAnswer) {
  start({.max_unsent_bytes = std::size_t{1} << 40});
  const std::size_t before = resident_bytes();
  EXPECT_EQ(refused_of(40), 0);
  if (!kIsSanitized) {
    EXPECT_GT(resident_bytes() - before, 400U << 20);
  }
}

TEST_F(SlowReaders, OneAnswerMayBeOfAnySizeAndRoomThatWasGivenComesBack) {
  start({.max_unsent_bytes = 1 << 20});
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(wait_until([&] {
      const auto answer = get(port_, "/huge");
      return answer.status == 200 && answer.body.size() == kHuge;
    }));
  EXPECT_EQ(get(port_, "/huge", "", "HEAD").status, 200);
}

}  // namespace
}  // namespace gradvane::exporters
