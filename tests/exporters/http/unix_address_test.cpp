// A server on a unix socket that people name: which server gets the name, and what becomes of it.
#include "exporters/http/unix_address.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <latch>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "exporters/http/http_server.hpp"
#include "tests/exporters/http/raw_client.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::get;
using fakes::RawClient;
using std::chrono_literals::operator""s;

class UnixAddress : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path path(const std::string& name = "run.sock") const {
    return scratch_.path() / name;
  }
  [[nodiscard]] std::string address(const std::string& name = "run.sock") const {
    return "unix:" + path(name).string();
  }
  [[nodiscard]] static std::unique_ptr<HttpServer> server(const std::string& says = "here") {
    std::map<std::string, HttpHandler> routes;
    routes["/"] = [says](const HttpRequest&) { return HttpResponse{.body = says}; };
    return std::make_unique<HttpServer>(std::move(routes));
  }
  [[nodiscard]] static std::string said_at(const std::filesystem::path& socket) {
    return get(RawClient(socket), "/").body;
  }
  /// A process that listened there and was killed.
  void leave_dead_socket() const {
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      UnixName name;
      const bool listens = name.listen(address(), 1, 8) >= 0;
      (void)!::write(ready[1], listens ? "y" : "n", 1);
      while (true) ::pause();
    }
    char said = 0;
    ASSERT_EQ(::read(ready[0], &said, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const int end : ready) ::close(end);
    ASSERT_EQ(said, 'y');
    ASSERT_TRUE(std::filesystem::is_socket(path()));
  }

  fakes::Scratch scratch_;
};

TEST_F(UnixAddress, IsAnAbsolutePathOfAtMostHundredBytesWithoutAColon) {
  EXPECT_TRUE(is_unix_address("unix:/run/gradvane.sock"));
  EXPECT_TRUE(is_unix_address("unix:/" + std::string(99, 'a')));
  for (const std::string& bad :
       {std::string("unix:run.sock"), std::string("unix:"), std::string("unix:/"),
        std::string("unix:/run/"), std::string("unix:@name"), std::string("/run/gradvane.sock"),
        std::string("unix:/run/a:b"), std::string("unix:/run/a\nb"), std::string("UNIX:/run/a"),
        "unix:/" + std::string(100, 'a'), std::string("unix:/run/\0a", 12)})
    EXPECT_FALSE(is_unix_address(bad)) << bad;
}

TEST_F(UnixAddress, IsServedForThisUserAloneAndItsNameGoesWithTheServer) {
  const auto here = server();
  const HttpStart started = here->start(address(), 9464);
  EXPECT_EQ(started.error, "");
  EXPECT_EQ(started.unix_address, address());
  EXPECT_EQ(started.port, 0);
  EXPECT_EQ(said_at(path()), "here");
  EXPECT_EQ(std::filesystem::status(path()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  here->stop(1s);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
}

TEST_F(UnixAddress, OfALiveProcessStaysItsOwnAndTheNextOneGetsAnother) {
  const auto first = server("first");
  const auto second = server("second");
  const auto third = server("third");
  ASSERT_EQ(first->start(address(), 0).error, "");
  EXPECT_EQ(second->start(address(), 0).unix_address, address("run.sock.1"));
  const HttpStart refused = third->start(address(), 0, 2);
  EXPECT_EQ(refused.error, "other processes listen on " + path().string() + " to .1");
  EXPECT_EQ(said_at(path()), "first");
  EXPECT_EQ(said_at(path("run.sock.1")), "second");
}

TEST_F(UnixAddress, OfAKilledProcessIsTakenOver) {
  leave_dead_socket();
  const auto here = server();
  EXPECT_EQ(here->start(address(), 0).unix_address, address());
  EXPECT_EQ(said_at(path()), "here");
}

TEST_F(UnixAddress, NeverReplacesWhatIsNoSocket) {
  std::ofstream(path()) << "a file of the user";
  const HttpStart refused = server()->start(address(), 0);
  EXPECT_EQ(refused.error, path().string() + " is there already and is no socket");
  std::string text;
  std::getline(std::ifstream(path()), text);
  EXPECT_EQ(text, "a file of the user");

  const auto other = server("other");
  ASSERT_EQ(other->start(address("other.sock"), 0).error, "");
  std::filesystem::create_symlink(path("other.sock"), path("link"));
  EXPECT_NE(server()->start(address("link"), 0).error, "") << "a link is no socket either";
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(said_at(path("other.sock")), "other");
}

TEST_F(UnixAddress, SaysWhyItCannotBeHad) {
  EXPECT_EQ(server()->start(address("none/run.sock"), 0).error,
            "cannot open the directory " + path("none").string() + ": No such file or directory");
}

TEST_F(UnixAddress, IsLeftAloneAtTheEndIfAnotherServerHasTheName) {
  const auto first = server("first");
  ASSERT_EQ(first->start(address(), 0).error, "");
  const auto second = server("second");
  ASSERT_EQ(second->start(address("second.sock"), 0).error, "");
  std::filesystem::rename(path("second.sock"), path());  // as a user may
  first->stop(1s);
  EXPECT_EQ(said_at(path()), "second");
}

TEST_F(UnixAddress, OfTheParentStaysWhenAForkedChildEnds) {
  const auto here = server();
  ASSERT_EQ(here->start(address(), 0).error, "");
  const pid_t child = ::fork();
  if (child == 0) {
    here->close_in_child();
    here->stop(1s);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(said_at(path()), "here");
}

/// Without the lock two of them replace the dead socket, and the first is never reached again.
TEST_F(UnixAddress, ThatIsDeadIsTakenByOneOfSeveralThatComeAtOnce) {
  constexpr int kServers = 8;
  for (int round = 0; round < 20; ++round) {
    leave_dead_socket();
    std::vector<std::unique_ptr<HttpServer>> servers;
    std::vector<HttpStart> started(kServers);
    for (int i = 0; i < kServers; ++i) servers.push_back(server(std::to_string(i)));
    {
      std::latch all(kServers);
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < kServers; ++i)
        threads.emplace_back([&, i] {
          all.arrive_and_wait();
          started[i] = servers[i]->start(address(), 0);
        });
    }
    std::set<std::string> addresses;
    for (std::size_t i = 0; i < kServers; ++i) {
      ASSERT_EQ(started[i].error, "");
      ASSERT_TRUE(addresses.insert(started[i].unix_address).second) << started[i].unix_address;
      ASSERT_EQ(said_at(started[i].unix_address.substr(5)), std::to_string(i));
    }
    ASSERT_TRUE(addresses.contains(address()));
  }
}

}  // namespace
}  // namespace gradvane::exporters
