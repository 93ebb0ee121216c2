// What of a web config is taken, and what is refused with which words. What OpenSSL has to say of certificates is in
// tls_test.py.
#include "exporters/web/web_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr std::string_view kHash = "$2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze";

class WebConfigTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file(const std::string& text,
                                           const std::string& name = "web.yml") const {
    std::ofstream(scratch_.path() / name) << text;
    return scratch_.path() / name;
  }

  /// Why it is refused; empty if it is taken.
  [[nodiscard]] std::string refusal(const std::string& text) const {
    try {
      (void)read_web_config(file(text));
      return {};
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }

  fakes::Scratch scratch_;
};

TEST_F(WebConfigTest, TakesAllThatAnExporterTakes) {
  (void)file("a certificate", "server.crt");
  (void)file("a key", "server.key");
  (void)file("a CA", "ca.crt");
  const WebConfig config = read_web_config(file(R"(
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus, 10.0.0.1]
  min_version: TLS13
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [X25519]
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=3600
basic_auth_users:
  alice: )" + std::string(kHash) + R"(
rate_limit:
  interval: 1.5s
  burst: 20
)"));
  ASSERT_TRUE(config.tls);
  EXPECT_EQ(config.tls->certificate, "a certificate");
  EXPECT_EQ(config.tls->key, "a key");
  EXPECT_EQ(config.tls->client_ca, "a CA");
  EXPECT_EQ(config.tls->client_auth, ClientAuth::require_and_verify);
  EXPECT_THAT(config.tls->client_names, ElementsAre("prometheus", "10.0.0.1"));
  EXPECT_EQ(config.tls->min_version, 13);
  EXPECT_THAT(config.tls->cipher_suites, ElementsAre("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"));
  EXPECT_THAT(config.tls->curves, ElementsAre("X25519"));
  EXPECT_FALSE(config.tls->server_chooses);
  EXPECT_THAT(config.headers, ElementsAre(Pair("Strict-Transport-Security", "max-age=3600")));
  EXPECT_THAT(config.users, ElementsAre(Pair("alice", std::string(kHash))));
  ASSERT_TRUE(config.limit);
  EXPECT_EQ(config.limit->interval, 1500ms);
  EXPECT_EQ(config.limit->burst, 20);
  EXPECT_EQ(config.files.size(), 4);
}

TEST_F(WebConfigTest, TakesAnEmptyFileAndEmptySections) {
  for (const char* text :
       {"", "# nothing\n",
        "tls_server_config:\nbasic_auth_users:\nrate_limit:\nhttp_server_config:\n",
        "rate_limit: {interval: 0s, burst: 0}", "http_server_config: {headers: {}}"}) {
    const WebConfig config = read_web_config(file(text));
    EXPECT_FALSE(config.tls) << text;
    EXPECT_FALSE(config.limit) << text;
    EXPECT_THAT(config.users, IsEmpty()) << text;
  }
}

TEST_F(WebConfigTest, TakesCertificatesThatStandInTheFile) {
  const WebConfig config = read_web_config(file("tls_server_config: {cert: one, key: two}"));
  ASSERT_TRUE(config.tls);
  EXPECT_EQ(config.tls->certificate, "one");
  EXPECT_EQ(config.tls->key, "two");
}

TEST_F(WebConfigTest, SaysWhatIsWrong) {
  const std::string hash(kHash);
  const std::string high = "$2y$13$" + hash.substr(7);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"tls: {}", "tls is not known; known are tls_server_config"},
      {"[1]", "has to be a mapping"},
      {"tls_server_config: 5", "tls_server_config has to be a mapping"},
      {"tls_server_config: {cert: a}", "tls_server_config.key_file is not there, nor is key"},
      {"tls_server_config: {key: a}", "tls_server_config.cert_file is not there, nor is cert"},
      {"tls_server_config: {cert: a, key: b, cert_file: c}", "both there"},
      {"tls_server_config: {cert_file: none.crt, key: b}", "none.crt"},
      {"tls_server_config: {cert_file: ., key: b}", "is no regular file"},
      {"tls_server_config: {cert: a, key: b, passphrase: c}",
       "tls_server_config.passphrase is not known"},
      {"tls_server_config: {cert: a, key: b, min_version: TLS10}",
       "'TLS10' is not allowed; allowed are TLS12, TLS13"},
      {"tls_server_config: {cert: a, key: b, min_version: TLS13, max_version: TLS12}",
       "min_version is above"},
      {"tls_server_config: {cert: a, key: b, client_auth_type: Maybe}", "'Maybe' is not allowed"},
      {"tls_server_config: {cert: a, key: b, client_auth_type: RequireAndVerifyClientCert}",
       "needs client_ca_file"},
      {"tls_server_config: {cert: a, key: b, client_ca: c}",
       "does nothing without client_auth_type"},
      {"tls_server_config: {cert: a, key: b, client_allowed_sans: [c]}",
       "client_allowed_sans needs"},
      {"tls_server_config: {cert: a, key: b, cipher_suites: c}", "cipher_suites has to be a list"},
      {"tls_server_config: {cert: a, key: b, prefer_server_cipher_suites: 2}",
       "has to be true or false"},
      {"basic_auth_users: {alice: secret}", "basic_auth_users.alice is no bcrypt hash"},
      {"basic_auth_users: [alice]", "has to be a mapping of names"},
      {"basic_auth_users: {'a:b': '" + hash + "'}", "a name has no colon"},
      {"basic_auth_users: {alice: '" + high + "'}", "has the cost 13; allowed are 4 to 12"},
      {"rate_limit: {interval: soon, burst: 1}", "'soon' is no duration"},
      {"rate_limit: {interval: 1s}", "rate_limit.burst is 0"},
      {"rate_limit: {interval: 1s, burst: -1}", "'-1' is no number of requests"},
      {"http_server_config: {headers: {Server: me}}",
       "http_server_config.headers.Server is not known"},
      {"http_server_config: {headers: {X-Frame-Options: \"deny\\r\\nEvil: 1\"}}",
       "one line of ASCII"},
      {"http_server_config: {http2: perhaps}", "http2 has to be true or false"},
      {"a: [", "web.yml: "},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_THAT(refusal(text), HasSubstr(words)) << text;
    EXPECT_THAT(refusal(text), HasSubstr("web_config " + (scratch_.path() / "web.yml").string()));
  }
  EXPECT_THAT(refusal("basic_auth_users: {alice: hunter2}"), Not(HasSubstr("hunter2")));
  EXPECT_THROW((void)read_web_config(scratch_.path() / "none.yml"), std::runtime_error);
  EXPECT_THROW((void)read_web_config(scratch_.path()), std::runtime_error);
}

TEST(GoDuration, IsReadAsGoWritesIt) {
  EXPECT_EQ(go_duration("0"), 0ns);
  EXPECT_EQ(go_duration("1s"), 1s);
  EXPECT_EQ(go_duration("1m30s"), 90s);
  EXPECT_EQ(go_duration("1h1m1s1ms1us1ns"), 3661001001001ns);
  EXPECT_EQ(go_duration(".5s"), 500ms);
  EXPECT_EQ(go_duration("2.5ms"), 2500000ns);
  for (const char* text :
       {"", "1", "s", "-1s", "1x", "1s ", "1e3s", "nan", "99999999999h", "1ss", "0x1s"})
    EXPECT_EQ(go_duration(text), std::nullopt) << text;
}

}  // namespace
}  // namespace gradvane::exporters
