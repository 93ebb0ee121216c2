// Who is let in where the endpoint asks for a token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "exporters/http/http_server.hpp"
#include "tests/exporters/http/raw_client.hpp"

namespace gradvane::exporters {
namespace {

using fakes::Answer;
using fakes::get;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kToken = "0123456789abcdef-._~";

HttpServerOptions asking() {
  HttpServerOptions options;
  options.token = kToken;
  options.otherwise = [](const HttpRequest& request) {
    return HttpResponse{.body = request.path + '|' + request.query};
  };
  return options;
}

class AccessTokenTest : public testing::Test {
 protected:
  AccessTokenTest() { port_ = server_.start("127.0.0.1", 0).port; }

  [[nodiscard]] int status(const std::string& fields,
                           const std::string& target = "/metrics") const {
    return get(port_, target, fields).status;
  }
  [[nodiscard]] std::string cookie() const { return "gradvane_token_" + std::to_string(port_); }

  HttpServer server_{{}, asking()};
  std::uint16_t port_ = 0;
};

TEST_F(AccessTokenTest, WhoShowsNoneOrAnotherIsRefusedAndToldHowToShowIt) {
  const Answer answer = get(port_, "/metrics");
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.fields.at("www-authenticate"), "Bearer realm=\"gradvane\"");
  EXPECT_THAT(answer.body, HasSubstr("gradvane open"));
  EXPECT_THAT(answer.body, Not(HasSubstr(kToken)));
  const std::string token = kToken;
  for (const std::string& other : {std::string(), token.substr(1), token + "x", "x" + token,
                                   token + token, std::string(20, '0')})
    EXPECT_EQ(status("Authorization: Bearer " + other + "\r\n"), 401) << other;
  EXPECT_EQ(status("Authorization: Basic " + token + "\r\n"), 401);
  EXPECT_EQ(status("Authorization: " + token + "\r\n"), 401);
  EXPECT_EQ(status("Cookie: gradvane_token_1=" + token + "\r\n"), 401) << "of another server";
  EXPECT_EQ(status("", "/?token=" + token.substr(1)), 401);
  EXPECT_EQ(status("", "/?not_token=" + token), 401);
}

TEST_F(AccessTokenTest, AHeaderOrACookieWithItLetsIn) {
  const std::string token = kToken;
  EXPECT_EQ(status("Authorization: Bearer " + token + "\r\n"), 200);
  EXPECT_EQ(status("authorization: bearer  " + token + "\r\n"), 200) << "schemes have no case";
  EXPECT_EQ(status("Cookie: " + cookie() + "=" + token + "\r\n"), 200);
  EXPECT_EQ(status("Cookie: a=b; " + cookie() + "=" + token + "; c=d\r\n"), 200);
  EXPECT_EQ(status("Cookie: " + cookie() + "=" + token + "x\r\n"), 401);
}

TEST_F(AccessTokenTest, ABrowserThatComesWithItInTheAddressGetsACookieAndACleanAddress) {
  const Answer answer = get(port_, std::string("/rank/1/?optimizer=0&token=") + kToken + "&x=1");
  EXPECT_EQ(answer.status, 303);
  EXPECT_EQ(answer.fields.at("location"), "/rank/1/?optimizer=0&x=1");
  EXPECT_EQ(answer.fields.at("set-cookie"),
            cookie() + "=" + kToken + "; Path=/; HttpOnly; SameSite=Strict");
  EXPECT_EQ(get(port_, std::string("/?token=") + kToken).fields.at("location"), "/");
  EXPECT_EQ(status("", std::string("//elsewhere.example/?token=") + kToken), 401)
      << "nobody is sent to another machine";
}

TEST_F(AccessTokenTest, ProbesOfOrchestratorsNeedNone) {
  EXPECT_EQ(status("", "/-/healthy"), 200);
  EXPECT_EQ(status("", "/-/ready?x"), 200);
  EXPECT_EQ(status("", "/-/healthy/../metrics"), 401);
  EXPECT_EQ(status("", "/rank/0/-/healthy"), 401);
}

TEST(AccessToken, WithoutOneEverythingIsAsBefore) {
  HttpServerOptions options = asking();
  options.token.clear();
  HttpServer server({}, options);
  const std::uint16_t port = server.start("127.0.0.1", 0).port;
  EXPECT_EQ(get(port, "/?token=x").body, "/|token=x");
}

}  // namespace
}  // namespace gradvane::exporters
