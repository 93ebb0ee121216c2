// Answers that go on until one side ends them.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <new>
#include <thread>

#include "exporters/http/http_server.hpp"
#include "tests/exporters/http/raw_client.hpp"

namespace gradvane::exporters {
namespace {

using fakes::get;
using fakes::RawClient;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class HttpStreamTest : public testing::Test {
 protected:
  explicit HttpStreamTest(HttpServerOptions options = {.max_streams = 2, .stream_pause = 5ms})
      : server_(routes(), std::move(options)) {
    port_ = server_.start("127.0.0.1", 0).port;
  }

  std::map<std::string, HttpHandler> routes() {
    std::map<std::string, HttpHandler> routes;
    routes["/stream"] = [this](const HttpRequest&) {
      ++begun_;
      return HttpResponse{.content_type = "text/event-stream", .stream = [this] {
                            ++asked_;
                            return part_.load() == 0 ? std::string()
                                                     : std::string(part_.load(), 'x') + '\n';
                          }};
    };
    routes["/short"] = [](const HttpRequest&) { return HttpResponse{.body = "short\n"}; };
    return routes;
  }
  static RawClient ask(std::uint16_t port) {
    RawClient client(port);
    client.send("GET /stream HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    return client;
  }
  static bool wait_until(const std::function<bool()>& is_so) {
    for (int i = 0; i < 2000 && !is_so(); ++i) std::this_thread::sleep_for(5ms);
    return is_so();
  }

  std::atomic<int> begun_ = 0;
  std::atomic<int> asked_ = 0;
  std::atomic<std::size_t> part_ = 4;
  HttpServer server_;
  std::uint16_t port_ = 0;
};

TEST_F(HttpStreamTest, SendsPartAfterPartWithoutALength) {
  RawClient client = ask(port_);
  ASSERT_TRUE(wait_until([&] { return asked_ > 5; }));
  server_.stop(1s);
  const auto answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.fields.at("content-type"), "text/event-stream");
  EXPECT_FALSE(answer.fields.contains("content-length"));
  EXPECT_FALSE(answer.fields.contains("content-encoding"));
  EXPECT_EQ(answer.fields.at("connection"), "close");
  EXPECT_TRUE(answer.body.starts_with("xxxx\nxxxx\n"));
}

TEST_F(HttpStreamTest, OneViewerTooManyIsRefusedAndOthersAreAnswered) {
  const RawClient first = ask(port_);
  const RawClient second = ask(port_);
  ASSERT_TRUE(wait_until([&] { return begun_ == 2 && asked_ > 4; }));
  RawClient third = ask(port_);
  const auto refused = third.receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.fields.at("retry-after"), "5");
  EXPECT_EQ(get(port_, "/short").status, 200);
}

TEST_F(HttpStreamTest, AViewerWhoLeavesMakesRoom) {
  part_ = 0;  // nothing is written, so only the closing itself can be noticed
  {
    const RawClient first = ask(port_);
    const RawClient second = ask(port_);
    ASSERT_TRUE(wait_until([&] { return begun_ == 2 && asked_ > 4; }));
  }
  EXPECT_TRUE(wait_until([&] {
    RawClient again(port_);
    again.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    return again.receive(false).status == 200;
  }));
}

TEST_F(HttpStreamTest, AHeadRequestGetsNoStream) {
  RawClient client(port_);
  client.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive(false).status, 200);
  EXPECT_TRUE(client.is_closed_within(2s));
  EXPECT_EQ(asked_, 0);
}

TEST_F(HttpStreamTest, WhatAViewerSaysMeanwhileIsIgnored) {
  RawClient client = ask(port_);
  ASSERT_TRUE(wait_until([&] { return asked_ > 2; }));
  client.send("GET /short HTTP/1.1\r\nHost: x\r\n\r\n");
  const int before = asked_;
  EXPECT_TRUE(wait_until([&] { return asked_ > before + 5; }));
}

TEST_F(HttpStreamTest, StoppingEndsStreamsAtOnce) {
  part_ = 0;
  RawClient client = ask(port_);
  ASSERT_TRUE(wait_until([&] { return asked_ > 2; }));
  part_ = 7;
  const auto begin = std::chrono::steady_clock::now();
  server_.stop(60s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_TRUE(client.is_closed_within(20s));
}

class SlowViewerTest : public HttpStreamTest {
 protected:
  SlowViewerTest()
      : HttpStreamTest({.write_deadline = 300ms,
                        .max_streams = 2,
                        .stream_pause = 1ms,
                        .dropped = [this](HttpDrop reason) {
                          if (reason == HttpDrop::write_deadline) ++dropped_;
                        }}) {}
  std::atomic<int> dropped_ = 0;
};

TEST_F(SlowViewerTest, WhoDoesNotReadIsDroppedAndNothingPilesUpForThem) {
  part_ = 1 << 20;
  RawClient client(port_);
  client.set_receive_buffer(4096);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(wait_until([&] { return dropped_ == 1; }));
  EXPECT_LT(asked_, 20);  // each part waited for the one before
  EXPECT_EQ(get(port_, "/short").status, 200);
}

TEST(HttpStream, APartThatCannotBeMadeIsLeftOut) {
  std::atomic<int> asked = 0;
  std::map<std::string, HttpHandler> routes;
  routes["/stream"] = [&](const HttpRequest&) {
    return HttpResponse{.stream = [&]() -> std::string {
      if (++asked % 2 == 1) throw std::bad_alloc();
      return "x";
    }};
  };
  HttpServer server(std::move(routes), {.stream_pause = 1ms});
  const auto port = server.start("127.0.0.1", 0).port;
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  for (int i = 0; i < 2000 && asked < 10; ++i) std::this_thread::sleep_for(2ms);
  EXPECT_GE(asked, 10);
}

}  // namespace
}  // namespace gradvane::exporters
