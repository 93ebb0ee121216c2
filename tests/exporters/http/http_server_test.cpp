// What the server answers to those who mean well.
#include "exporters/http/http_server.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "tests/exporters/http/raw_client.hpp"

namespace gradvane::exporters {
namespace {

using fakes::get;
using fakes::RawClient;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

std::string unzipped(const std::string& packed) {
  std::string text(1 << 20, '\0');
  z_stream stream{};
  inflateInit2(&stream, 15 + 16);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

std::map<std::string, HttpHandler> some_routes() {
  std::map<std::string, HttpHandler> routes;
  routes["/short"] = [](const HttpRequest&) { return HttpResponse{.body = "short\n"}; };
  routes["/long"] = [](const HttpRequest&) { return HttpResponse{.body = std::string(5000, 'x')}; };
  routes["/query"] = [](const HttpRequest& request) {
    return HttpResponse{.body = request.path + '|' + request.query + '|' + request.accept};
  };
  routes["/throws"] = [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("no"); };
  return routes;
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { port_ = server_.start("127.0.0.1", 0).port; }

  HttpServer server_{some_routes()};
  std::uint16_t port_ = 0;
};

TEST_F(HttpServerTest, AnswersARoute) {
  const auto answer = get(port_, "/short");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "short\n");
  EXPECT_EQ(answer.fields.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(answer.fields.at("vary"), "Accept-Encoding");
  EXPECT_EQ(answer.fields.at("cache-control"), "no-store");
  EXPECT_EQ(answer.fields.at("x-content-type-options"), "nosniff");
  EXPECT_THAT(answer.fields.at("content-security-policy"),
              HasSubstr("default-src 'none'; script-src 'self'"));
  EXPECT_THAT(answer.fields.at("date"), HasSubstr("GMT"));
}

TEST_F(HttpServerTest, HandsPathQueryAndAcceptToTheHandler) {
  EXPECT_EQ(get(port_, "/query?a=b&c=%20d", "Accept: text/x\r\n").body, "/query|a=b&c=%20d|text/x");
  EXPECT_EQ(get(port_, "/query?").body, "/query||");
}

TEST_F(HttpServerTest, Answers404WithoutRepeatingWhatWasAsked) {
  for (const auto* target : {"/nothing", "/short/", "/SHORT", "/short%00", "//short", "*",
                             "http://x/short", "/<script>alert(1)</script>"}) {
    const auto answer = get(port_, target);
    EXPECT_EQ(answer.status, 404) << target;
    EXPECT_EQ(answer.body, "not found\n") << target;
  }
}

TEST_F(HttpServerTest, HeadIsGetWithoutTheBody) {
  const auto got = get(port_, "/long", "Accept-Encoding: gzip\r\n");
  const auto head = get(port_, "/long", "Accept-Encoding: gzip\r\n", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.fields.at("content-length"), got.fields.at("content-length"));
  EXPECT_EQ(head.fields.at("content-encoding"), "gzip");
  RawClient client(port_);
  client.send("HEAD /long HTTP/1.1\r\nHost: x\r\n\r\nGET /short HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive(false).status, 200);
  EXPECT_EQ(client.receive().body, "short\n");
}

TEST_F(HttpServerTest, AllowsNoOtherMethod) {
  for (const auto* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"}) {
    const auto answer = get(port_, "/short", "", method);
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.fields.at("allow"), "GET, HEAD") << method;
  }
}

TEST_F(HttpServerTest, PacksLongBodiesWhereThatIsAsked) {
  const auto packed = get(port_, "/long", "Accept-Encoding: deflate, gzip;q=0.5\r\n");
  EXPECT_EQ(packed.fields.at("content-encoding"), "gzip");
  EXPECT_LT(packed.body.size(), 200U);
  EXPECT_EQ(unzipped(packed.body), std::string(5000, 'x'));
  for (const auto* fields :
       {"", "Accept-Encoding: identity\r\n", "Accept-Encoding: gzip;q=0\r\n"}) {
    const auto plain = get(port_, "/long", fields);
    EXPECT_FALSE(plain.fields.contains("content-encoding"));
    EXPECT_EQ(plain.body, std::string(5000, 'x'));
  }
  EXPECT_FALSE(
      get(port_, "/short", "Accept-Encoding: gzip\r\n").fields.contains("content-encoding"));
}

TEST_F(HttpServerTest, AHandlerThatThrowsIsA500AndTheNextOneIsFine) {
  EXPECT_EQ(get(port_, "/throws").status, 500);
  EXPECT_EQ(get(port_, "/short").status, 200);
}

TEST_F(HttpServerTest, KeepsTheConnectionUnlessAskedNotTo) {
  RawClient client(port_);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.send("GET /short HTTP/1.1\r\nHost: x\r\n\r\n"));
    ASSERT_EQ(client.receive().status, 200);
  }
  client.send("GET /short HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.receive().fields.at("connection"), "close");
  EXPECT_TRUE(client.is_closed_within(2s));

  RawClient old(port_);
  old.send("GET /short HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.receive().status, 200);
  EXPECT_TRUE(old.is_closed_within(2s));
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  RawClient client(port_);
  std::string requests;
  for (int i = 0; i < 200; ++i) {
    requests += "GET /query?" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  }
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(client.receive().body, "/query|" + std::to_string(i) + "|");
  }
}

TEST_F(HttpServerTest, AnswersAClientThatHasShutDownItsSide) {
  RawClient client(port_);
  client.send("GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
  client.shut_down_sending();
  EXPECT_EQ(client.receive().body.size(), 5000U);
  EXPECT_TRUE(client.is_closed_within(2s));
}

// ---- start and stop -------------------------------------------------------------------------------

TEST(HttpServerStart, TakesTheNextPortWhereOneIsTaken) {
  HttpServer first(some_routes());
  const auto port = first.start("127.0.0.1", 0).port;
  HttpServer second(some_routes());
  const auto next = second.start("127.0.0.1", port);
  EXPECT_THAT(next.error, IsEmpty());
  EXPECT_GT(next.port, port);
  EXPECT_EQ(second.port(), next.port);
  EXPECT_EQ(get(next.port, "/short").status, 200);
}

TEST(HttpServerStart, SaysWhyItCannot) {
  HttpServer taken(some_routes());
  const auto port = taken.start("127.0.0.1", 0).port;
  const auto start = [](const std::string& address, std::uint16_t at) {
    HttpServer server(some_routes());
    return server.start(address, at, 1);
  };
  EXPECT_THAT(start("127.0.0.1", port).error, HasSubstr(std::to_string(port)));
  EXPECT_EQ(start("127.0.0.1", port).port, 0);
  EXPECT_THAT(start("nonsense", 0).error, HasSubstr("'nonsense' is not an IP address"));
  EXPECT_THAT(start("203.0.113.7", 0).error, Not(IsEmpty()));
}

TEST(HttpServerStart, DoesNotRunPastTheLastPort) {
  HttpServer first(some_routes());
  HttpServer second(some_routes());
  const auto top = first.start("127.0.0.1", 65535, 5);
  const auto past = second.start("127.0.0.1", 65535, 5);
  EXPECT_THAT(past.error, HasSubstr("65535"));
  EXPECT_EQ(past.port, 0);
  EXPECT_TRUE(top.port == 65535 || !top.error.empty());  // somebody else may hold it
}

TEST(HttpServerStart, ListensOnIPv6WhereAsked) {
  HttpServer server(some_routes());
  const auto started = server.start("::1", 0);
  if (!started.error.empty()) GTEST_SKIP() << "no IPv6 here: " << started.error;
  EXPECT_GT(started.port, 0);
}

TEST(HttpServerStop, IsQuickAndMayComeTwice) {
  HttpServer server(some_routes());
  const auto port = server.start("127.0.0.1", 0).port;
  RawClient idle(port);
  idle.send("GET /short HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_EQ(idle.receive().status, 200);
  RawClient half(port);
  half.send("GET /sho");
  const auto begin = std::chrono::steady_clock::now();
  server.stop(60s);
  server.stop(60s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s) << "it waits for those who say nothing";
  EXPECT_TRUE(idle.is_closed_within(20s));
  EXPECT_TRUE(half.is_closed_within(20s));
  EXPECT_FALSE(RawClient(port).is_open());
}

TEST(HttpServerStop, BeforeStartIsFine) {
  HttpServer server(some_routes());
  server.stop(1s);
}

TEST(HttpServerStop, LetsAnAnswerOnItsWayArrive) {
  std::atomic<bool> is_in_handler = false;
  std::map<std::string, HttpHandler> routes;
  routes["/slow"] = [&](const HttpRequest&) {
    is_in_handler = true;
    std::this_thread::sleep_for(200ms);
    return HttpResponse{.body = std::string(1 << 20, 'x')};
  };
  HttpServer server(std::move(routes));
  RawClient client(server.start("127.0.0.1", 0).port);
  client.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
  while (!is_in_handler) std::this_thread::yield();
  std::jthread stopper([&] { server.stop(60s); });
  EXPECT_EQ(client.receive().body.size(), std::size_t{1} << 20);
}

TEST(HttpServerStop, DoesNotWaitForAStuckHandlerBeyondItsBudget) {
  const auto is_free = std::make_shared<std::atomic<bool>>(false);
  std::map<std::string, HttpHandler> routes;
  routes["/stuck"] = [is_free](const HttpRequest&) {
    while (!*is_free) std::this_thread::sleep_for(5ms);
    return HttpResponse{};
  };
  auto server = std::make_unique<HttpServer>(std::move(routes));
  RawClient client(server->start("127.0.0.1", 0).port);
  client.send("GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(50ms);
  const auto begin = std::chrono::steady_clock::now();
  server->stop(100ms);
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  *is_free = true;
  EXPECT_TRUE(client.is_closed_within(20s));
}

TEST(HttpServerStop, DeliveredIsCalledOnceTheWholeAnswerIsOut) {
  std::atomic<int> delivered = 0;
  std::map<std::string, HttpHandler> routes;
  routes["/"] = [&](const HttpRequest&) {
    return HttpResponse{.body = std::string(1 << 16, 'x'), .delivered = [&] { ++delivered; }};
  };
  HttpServer server(std::move(routes));
  const auto port = server.start("127.0.0.1", 0).port;
  EXPECT_EQ(get(port, "/", "", "HEAD").status, 200);
  EXPECT_EQ(get(port, "/").status, 200);
  server.stop(20s);
  EXPECT_EQ(delivered, 1);
}

// ---- fork, exec, signals --------------------------------------------------------------------------

TEST(HttpServerFork, AChildLetsGoOfThePortAndExitsCleanly) {
  HttpServer server(some_routes());
  const auto port = server.start("127.0.0.1", 0).port;
  RawClient client(port);
  client.send("GET /short HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_EQ(client.receive().status, 200);

  int go[2];
  int closed[2];
  ASSERT_EQ(::pipe(go), 0);
  ASSERT_EQ(::pipe(closed), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    server.close_in_child();
    (void)!::write(closed[1], "x", 1);
    server.stop(1s);
    const bool is_inert = !server.start("127.0.0.1", 0).error.empty();
    char byte = 0;
    (void)!::read(go[0], &byte, 1);
    {
      HttpServer taken = HttpServer(some_routes());
    }
    ::_exit(is_inert ? 0 : 1);
  }
  EXPECT_EQ(get(port, "/short").status, 200);
  server.stop(20s);
  char byte = 0;
  ASSERT_EQ(::read(closed[0], &byte, 1), 1);
  EXPECT_TRUE(client.is_closed_within(20s)) << "the child still holds the connection";
  EXPECT_FALSE(RawClient(port).is_open()) << "the child still holds the port";
  HttpServer again(some_routes());
  EXPECT_THAT(again.start("127.0.0.1", port, 1).error, IsEmpty());
  (void)!::write(go[1], "x", 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(HttpServerFork, NoProgramThatIsStartedInheritsASocket) {
  HttpServer server(some_routes());
  const auto port = server.start("127.0.0.1", 0).port;
  RawClient client(port);
  client.send("GET /short HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_EQ(client.receive().status, 200);
  int inherited = 0;
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    const auto* ip = reinterpret_cast<const sockaddr_in*>(&address);
    if (ip->sin_family != AF_INET || ntohs(ip->sin_port) != port) continue;
    if ((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) == 0) ++inherited;
  }
  EXPECT_EQ(inherited, 0);
}

volatile std::sig_atomic_t signals_on_main = 0;
pthread_t main_thread;

TEST(HttpServerSignals, StayWithTheProgramsOwnThreads) {
  main_thread = pthread_self();
  HttpServer server(some_routes());
  ASSERT_GT(server.start("127.0.0.1", 0).port, 0);
  std::signal(SIGUSR1, [](int) {
    if (pthread_equal(pthread_self(), main_thread) != 0) signals_on_main = signals_on_main + 1;
  });
  for (int i = 0; i < 100; ++i) {
    ::kill(::getpid(), SIGUSR1);
    std::this_thread::sleep_for(1ms);
  }
  std::signal(SIGUSR1, SIG_DFL);
  EXPECT_GE(signals_on_main, 90);  // a signal that is pending is not queued twice
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGUSR1), 0) << "start() must leave the caller's mask alone";
}

}  // namespace
}  // namespace gradvane::exporters
