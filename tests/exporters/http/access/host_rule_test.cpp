// By which names a request may call the server, and on whose behalf a browser may.
#include "exporters/http/access/host_rule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "exporters/http/http_server.hpp"
#include "tests/exporters/http/raw_client.hpp"

namespace gradvane::exporters {
namespace {

using fakes::get;
using fakes::RawClient;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

bool answers(const HostRule& rule, std::string_view field) { return is_answered(rule, field, "/"); }

TEST(HostRule, AnIpAddressAndLocalhostAreAlwaysAnswered) {
  for (const char* address : {"127.0.0.1", "::1", "localhost", "0.0.0.0", "192.0.2.7"}) {
    const HostRule rule = host_rule(address, "", "");
    for (const char* field : {"127.0.0.1", "127.0.0.1:9464", "[::1]", "[::1]:9464",
                              "[fe80::1%25eth0]:80", "192.0.2.7:1", "localhost", "localhost:9464",
                              "LocalHost:8080", "localhost.", "a.localhost:9464"})
      EXPECT_TRUE(answers(rule, field)) << address << ' ' << field;
  }
}

TEST(HostRule, OnLoopbackNoOtherNameIsAnsweredOnAnyPath) {
  for (const char* address : {"127.0.0.1", "127.8.8.8", "::1", "localhost"}) {
    const HostRule rule = host_rule(address, "node7", "");
    for (const char* field : {"rebind.attacker.example", "attacker.example:9464", "node7", "", "*",
                              "localhost.attacker.example", "127.0.0.1.attacker.example",
                              "xlocalhost", "localhost:80@attacker.example", "[::1", "[]:80",
                              "localhost:9464:9464", "127.0.0.1 attacker.example", ".localhost."})
      for (const char* path : {"/", "/metrics", "/api/v1/status", "/-/healthy"})
        EXPECT_FALSE(is_answered(rule, field, path)) << address << ' ' << field << ' ' << path;
  }
}

TEST(HostRule, ElsewhereTheNamesOfThisMachineAreAnswered) {
  std::array<char, 256> own{};
  ASSERT_EQ(::gethostname(own.data(), own.size() - 1), 0);
  const HostRule rule = host_rule("0.0.0.0", "node7.example", "");
  EXPECT_TRUE(answers(rule, std::string(own.data()) + ":9464"));
  EXPECT_TRUE(answers(rule, "node7:9464"));
  EXPECT_TRUE(answers(rule, "Node7.Example:9464"));
  EXPECT_FALSE(answers(rule, "node7.attacker.example"));
  EXPECT_FALSE(answers(rule, "gradvane.default.svc.cluster.local"));
}

TEST(HostRule, ElsewherePrometheusMayScrapeUnderAnyName) {
  const HostRule rule = host_rule("0.0.0.0", "", "");
  const char* service = "gradvane.default.svc.cluster.local:9464";
  for (const char* path : {"/metrics", "/-/healthy", "/-/ready"})
    EXPECT_TRUE(is_answered(rule, service, path)) << path;
  for (const char* path : {"/", "/page.js", "/api/v1/status", "/metrics/", "/metricsx"})
    EXPECT_FALSE(is_answered(rule, service, path)) << path;
}

TEST(HostRule, NamesThatAreAllowedAreAnswered) {
  const HostRule rule = host_rule("127.0.0.1", "", "gpu-box, *.svc.cluster.local,Train.Example.");
  EXPECT_TRUE(answers(rule, "GPU-box:9464"));
  EXPECT_TRUE(answers(rule, "a.b.svc.cluster.local"));
  EXPECT_TRUE(answers(rule, "train.example:80"));
  EXPECT_FALSE(answers(rule, "svc.cluster.local"));
  EXPECT_FALSE(answers(rule, "xsvc.cluster.local"));
  EXPECT_FALSE(answers(rule, "a.train.example"));
  EXPECT_TRUE(answers(host_rule("127.0.0.1", "", "*"), "rebind.attacker.example"));
}

TEST(HostRule, TheNamesOfAMachineAreThoseOfTheDomainsThatItSearches) {
  EXPECT_THAT(names_of_machine("Node7",
                               "# search no.example\nnameserver 192.0.2.1\n"
                               "search ns.svc.cluster.local  Corp.Example.\n"
                               "domain lab.example\r\nsearched x\nsearch"),
              ElementsAre("node7", "node7", "node7.ns.svc.cluster.local", "node7.corp.example",
                          "node7.lab.example"));
  EXPECT_THAT(names_of_machine("node7.lab.example.", ""),
              ElementsAre("node7.lab.example", "node7"));
  EXPECT_THAT(names_of_machine("", "search a.example"), IsEmpty());
}

TEST(HostRule, OnlyNamesMayBeAllowed) {
  for (const char* good : {"", "a", "a,b", " a , b ", "*", "*.a.example", "under_score-1.example."})
    EXPECT_TRUE(are_host_names(good)) << good;
  for (const char* bad :
       {"a:80", "http://a", "a/b", "*a", "a.*", "*.", ".a", "a,b:1", "[::1]", "ä"})
    EXPECT_FALSE(are_host_names(bad)) << bad;
}

// ---- over a socket --------------------------------------------------------------------------------

class AdmissionTest : public testing::Test {
 protected:
  AdmissionTest() { port_ = server_.start("127.0.0.1", 0).port; }

  static std::map<std::string, HttpHandler> routes() {
    return {{"/metrics", [](const HttpRequest&) { return HttpResponse{.body = "secret\n"}; }}};
  }
  [[nodiscard]] fakes::Answer ask(const std::string& head) const {
    RawClient client(port_);
    client.send(head + "\r\n");
    return client.receive();
  }
  [[nodiscard]] int status_for(const std::string& head) const { return ask(head).status; }

  HttpServer server_{routes(), {.hosts = host_rule("127.0.0.1", "", "allowed.example")}};
  std::uint16_t port_ = 0;
};

TEST_F(AdmissionTest, ANameThatAnotherSitePointsHereGets421AndWhatToDo) {
  const auto answer =
      ask("GET /metrics HTTP/1.1\r\nHost: rebind.attacker.example:9464\r\n"
          "Origin: http://rebind.attacker.example:9464\r\n");
  EXPECT_EQ(answer.status, 421);
  EXPECT_THAT(answer.body, HasSubstr("allowed_hosts (GRADVANE_ALLOWED_HOSTS)"));
  EXPECT_THAT(answer.body, testing::Not(HasSubstr("attacker")));
  EXPECT_EQ(answer.fields.at("connection"), "close");
  EXPECT_EQ(status_for("GET /metrics HTTP/1.1\r\nHost: allowed.example\r\n"), 200);
  EXPECT_EQ(status_for("GET /metrics HTTP/1.0\r\nHost: rebind.attacker.example\r\n"), 421);
  EXPECT_EQ(status_for("GET /nothing HTTP/1.1\r\nHost: rebind.attacker.example\r\n"), 421);
  EXPECT_EQ(status_for("POST /metrics HTTP/1.1\r\nHost: rebind.attacker.example\r\n"), 421);
}

TEST_F(AdmissionTest, ARequestNamesItsHostOnce) {
  EXPECT_EQ(status_for("GET /metrics HTTP/1.1\r\n"), 400);
  EXPECT_EQ(status_for("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n"), 400);
  EXPECT_EQ(status_for("GET /metrics HTTP/1.0\r\nHost: localhost\r\nhost: evil.example\r\n"), 400);
  EXPECT_EQ(status_for("GET /metrics HTTP/1.0\r\n"), 200) << "HTTP/1.0 knows no Host";
  EXPECT_EQ(status_for("GET /metrics HTTP/1.1\r\nHost:\r\n"), 421);
}

TEST_F(AdmissionTest, PagesOfOtherSitesAreRefusedAndPeopleWhoFollowALinkAreNot) {
  const auto asked_by = [&](const std::string& fields) {
    return status_for("GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + fields);
  };
  for (const std::string site : {"cross-site", "same-site"}) {
    const std::string from = "Sec-Fetch-Site: " + site + "\r\n";
    EXPECT_EQ(asked_by(from), 403);
    EXPECT_EQ(asked_by(from + "Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n"), 403);
    EXPECT_EQ(asked_by(from + "Sec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n"), 403);
    EXPECT_EQ(asked_by(from + "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n"), 403);
    EXPECT_EQ(asked_by(from + "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"), 200);
  }
  EXPECT_EQ(asked_by("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n"), 200);
  EXPECT_EQ(asked_by("Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n"), 200);
}

TEST_F(AdmissionTest, EveryAnswerKeepsOtherSitesOut) {
  for (const char* target : {"/metrics", "/nothing"}) {
    const auto answer = get(port_, target);
    EXPECT_EQ(answer.fields.at("cross-origin-resource-policy"), "same-origin");
    EXPECT_EQ(answer.fields.at("cross-origin-opener-policy"), "same-origin");
  }
}

}  // namespace
}  // namespace gradvane::exporters
