// What becomes of the server's descriptors: at its end, and where the program has closed them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "exporters/http/http_server.hpp"
#include "tests/exporters/http/raw_client.hpp"

namespace gradvane::exporters {
namespace {

using fakes::get;
using std::chrono_literals::operator""s;

std::map<std::string, HttpHandler> one_route() {
  std::map<std::string, HttpHandler> routes;
  routes["/short"] = [](const HttpRequest&) { return HttpResponse{.body = "short\n"}; };
  return routes;
}

std::set<int> open_descriptors() {
  std::set<int> found;
  for (int i = 0; i < 1024; ++i) {
    if (::fcntl(i, F_GETFD) >= 0) found.insert(i);
  }
  return found;
}

TEST(HttpDescriptors, AreClosedWhenItHasStopped) {
  const auto before = open_descriptors();
  HttpServer server(one_route());
  ASSERT_EQ(get(server.start("127.0.0.1", 0).port, "/short").status, 200);
  EXPECT_GT(open_descriptors().size(), before.size());
  server.stop(1s);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(HttpDescriptors, AreLeftAloneWhenTheProgramHasClosedThemAndUsesTheirNumbers) {
  const auto before = open_descriptors();
  const int own = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  std::set<int> numbers;
  {
    HttpServer server(one_route());
    const auto port = server.start("127.0.0.1", 0).port;
    EXPECT_FALSE(server.leave_if_closed());
    for (const int number : open_descriptors()) {
      if (number != own && !before.contains(number)) numbers.insert(number);
    }
    ASSERT_GE(numbers.size(), 2U);
    for (const int number : numbers) ASSERT_EQ(::dup2(own, number), number);
    EXPECT_TRUE(server.leave_if_closed());
    EXPECT_EQ(get(port, "/short").status, 0);
  }
  for (const int number : numbers) {
    EXPECT_GE(::fcntl(number, F_GETFD), 0) << number << " was the program's, and is closed";
    ::close(number);
  }
  ::close(own);
}

}  // namespace
}  // namespace gradvane::exporters
