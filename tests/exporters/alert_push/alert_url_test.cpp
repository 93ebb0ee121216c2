#include "exporters/alert_push/alert_url.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace gradvane::exporters {
namespace {

using testing::HasSubstr;

std::string why_refused(std::string_view url) {
  try {
    (void)parse_alert_url(url);
    return "it was not";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(AlertUrl, HasAHostAPortAndThePathOfTheApi) {
  const AlertUrl url = parse_alert_url("http://alerts.example-1.com:9093");
  EXPECT_EQ(url.host, "alerts.example-1.com");
  EXPECT_EQ(url.port, 9093);
  EXPECT_EQ(url.authority, "alerts.example-1.com:9093");
  EXPECT_EQ(url.target, "/api/v2/alerts");
}

TEST(AlertUrl, WithoutAPortIsThatOfTheScheme) {
  EXPECT_EQ(parse_alert_url("http://localhost/").port, 80);
  EXPECT_EQ(parse_alert_url("http://localhost/").authority, "localhost");
}

TEST(AlertUrl, KeepsThePrefixAndTakesTheWholePathAsWell) {
  EXPECT_EQ(parse_alert_url("http://h/am/").target, "/am/api/v2/alerts");
  EXPECT_EQ(parse_alert_url("http://h/a/b//").target, "/a/b/api/v2/alerts");
  EXPECT_EQ(parse_alert_url("http://h:1/am/api/v2/alerts").target, "/am/api/v2/alerts");
}

TEST(AlertUrl, TakesAnIpv6AddressInBrackets) {
  const AlertUrl url = parse_alert_url("http://[::1]:9093/am");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 9093);
  EXPECT_EQ(url.authority, "[::1]:9093");
  EXPECT_EQ(parse_alert_url("http://[fe80::2]").port, 80);
}

TEST(AlertUrl, MayAskForTls) {
  const AlertUrl url = parse_alert_url("https://alerts:9443/am");
  EXPECT_TRUE(url.has_tls);
  EXPECT_EQ(url.port, 9443);
  EXPECT_EQ(parse_alert_url("https://alerts").port, 443);
  EXPECT_FALSE(parse_alert_url("http://alerts").has_tls);
}

TEST(AlertUrl, WithAPasswordIsRefusedAndThePasswordIsNotSaid) {
  const std::string why = why_refused("https://me:secret@host");
  EXPECT_THAT(why, HasSubstr("alertmanager_http_config"));
  EXPECT_THAT(why, testing::Not(HasSubstr("secret")));
}

TEST(AlertUrl, IsRefusedWithAReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "begins with http://"},
      {"host:9093", "begins with http://"},
      {"HTTP://host", "begins with http://"},
      {"http://", "not the name of a host"},
      {"http:///am", "not the name of a host"},
      {"http://:9093", "not the name of a host"},
      {"http://ho,st", "not the name of a host"},
      {"http://::1:9093", "not the name of a host"},
      {"http://host:", "the port"},
      {"http://host:0", "the port"},
      {"http://host:65536", "the port"},
      {"http://host:90x", "the port"},
      {"http://host:-1", "the port"},
      {"http://user:secret@host", "a user and a password"},
      {"http://host/?a=b", "a query"},
      {"http://host/#top", "a query"},
      {"http://host/a b", "blanks"},
      {"http://host/a\r\nX-Evil: 1", "blanks"},
      {"http://h\xc3\xb6st", "blanks"},
      {"http://[::1", "ends with ]"},
      {"http://[::1]9093", "a colon"},
      {"http://[nothing]", "not an IPv6 address"},
  };
  for (const auto& [url, reason] : cases) EXPECT_THAT(why_refused(url), HasSubstr(reason)) << url;
}

TEST(AlertUrl, KnowsALinkFromOtherText) {
  EXPECT_TRUE(is_web_link("http://127.0.0.1:9400/"));
  EXPECT_TRUE(is_web_link("https://wiki/run?x=1#y"));
  EXPECT_FALSE(is_web_link(""));
  EXPECT_FALSE(is_web_link("javascript:alert(1)"));
  EXPECT_FALSE(is_web_link("http://a b"));
  EXPECT_FALSE(is_web_link("http://a\""));
}

}  // namespace
}  // namespace gradvane::exporters
