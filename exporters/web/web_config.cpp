#include "exporters/web/web_config.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace gradvane::exporters {
namespace {

constexpr int kHighestCost = 12;  // a quarter of a second of the endpoint's thread
constexpr int kLowestCost = 4;
constexpr std::size_t kBcryptLength = 60;

void take_tls(const YamlSection& tls, WebConfig& config, ConfigFiles& files) {
  static constexpr std::array<std::pair<std::string_view, ClientAuth>, 6> kAuth{{
      {"NoClientCert", ClientAuth::none},
      {"RequestClientCert", ClientAuth::request},
      {"RequireAnyClientCert", ClientAuth::require_any},
      {"RequireClientCert", ClientAuth::require_any},  // its old name
      {"VerifyClientCertIfGiven", ClientAuth::verify_if_given},
      {"RequireAndVerifyClientCert", ClientAuth::require_and_verify},
  }};
  tls.allow({"cert", "key", "client_ca", "cert_file", "key_file", "client_auth_type",
             "client_ca_file", "client_allowed_sans", "min_version", "max_version", "cipher_suites",
             "prefer_server_cipher_suites", "curve_preferences"});
  TlsSettings settings;
  settings.certificate = files.text_of(tls, "cert", "cert_file");
  settings.key = files.text_of(tls, "key", "key_file");
  settings.client_ca = files.text_of(tls, "client_ca", "client_ca_file");
  settings.client_auth = tls.choice("client_auth_type", ClientAuth::none, kAuth);
  settings.client_names = tls.texts("client_allowed_sans");
  settings.min_version = tls.choice("min_version", 12, kTlsVersions);
  settings.max_version = tls.choice("max_version", 13, kTlsVersions);
  settings.cipher_suites = tls.texts("cipher_suites");
  settings.curves = tls.texts("curve_preferences");
  settings.server_chooses = tls.flag("prefer_server_cipher_suites", true);
  if (settings.certificate.empty()) refuse(tls.name_of("cert_file") + " is not there, nor is cert");
  if (settings.key.empty()) refuse(tls.name_of("key_file") + " is not there, nor is key");
  if (settings.min_version > settings.max_version)
    refuse(tls.name_of("min_version") + " is above max_version");
  const bool verifies = settings.client_auth == ClientAuth::verify_if_given ||
                        settings.client_auth == ClientAuth::require_and_verify;
  if (verifies && settings.client_ca.empty())
    refuse(tls.name_of("client_auth_type") +
           " needs client_ca_file: the CA that clients' certificates are of");
  if (settings.client_auth == ClientAuth::none && !settings.client_ca.empty())
    refuse(tls.name_of("client_ca_file") +
           " does nothing without client_auth_type: RequireAndVerifyClientCert");
  const bool requires_one = settings.client_auth == ClientAuth::require_any ||
                            settings.client_auth == ClientAuth::require_and_verify;
  if (!settings.client_names.empty() && !requires_one)
    refuse(tls.name_of("client_allowed_sans") +
           " needs client_auth_type: RequireAndVerifyClientCert");
  config.tls = std::move(settings);
}

void take_users(const YAML::Node& users, WebConfig& config) {
  const std::string name = "basic_auth_users";
  if (!users || users.IsNull()) return;
  if (!users.IsMap()) refuse(name + " has to be a mapping of names to bcrypt hashes");
  for (const auto& item : users) {
    const auto user = item.first.as<std::string>();
    const std::string hash = item.second.IsScalar() ? item.second.Scalar() : "";
    int cost = 0;
    const bool is_bcrypt =
        hash.size() == kBcryptLength && hash.starts_with("$2") &&
        std::string_view("aby").find(hash[2]) != std::string_view::npos && hash[3] == '$' &&
        std::from_chars(hash.data() + 4, hash.data() + 6, cost).ptr == hash.data() + 6 &&
        hash[6] == '$';
    // Never the hash itself: this text goes to logs.
    if (!is_bcrypt)
      refuse(name + "." + user + " is no bcrypt hash; `htpasswd -nBC 10 \"\"` makes one");
    if (cost < kLowestCost || cost > kHighestCost)
      refuse(
          name + "." + user + " has the cost " + std::to_string(cost) +
          "; allowed are 4 to 12, as each wrong password takes that long of the endpoint's time");
    if (user.find(':') != std::string::npos) refuse(name + "." + user + ": a name has no colon");
    if (!config.users.emplace(user, hash).second) refuse(name + "." + user + " is there twice");
  }
}

void take_limit(const YamlSection& limit, WebConfig& config) {
  limit.allow({"interval", "burst"});
  const std::string interval = limit.text("interval");
  const auto time = go_duration(interval.empty() ? "0" : interval);
  if (!time)
    refuse(limit.name_of("interval") + ": '" + interval +
           "' is no duration; one looks like 500ms or 1s");
  const std::string burst = limit.text("burst");
  int count = 0;
  const auto [end, error] = std::from_chars(burst.data(), burst.data() + burst.size(), count);
  if (!burst.empty() && (error != std::errc() || end != burst.data() + burst.size() || count < 0))
    refuse(limit.name_of("burst") + ": '" + burst + "' is no number of requests");
  if (time->count() == 0) return;
  if (count == 0)
    refuse(limit.name_of("burst") + " is 0, which lets no request through; it has to be 1 or more");
  config.limit = {.interval = *time, .burst = count};
}

void take_headers(const YamlSection& server, WebConfig& config) {
  server.allow({"http2", "headers"});
  (void)server.flag("http2", true);
  const YamlSection headers = server.section("headers");
  constexpr std::array<const char*, 5> kKnown{"Content-Security-Policy", "X-Frame-Options",
                                              "X-Content-Type-Options", "X-XSS-Protection",
                                              "Strict-Transport-Security"};
  headers.allow({kKnown[0], kKnown[1], kKnown[2], kKnown[3], kKnown[4]});
  for (const char* key : kKnown) {
    std::string value = headers.text(key);
    if (value.empty()) continue;
    const bool is_line = std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_line) refuse(headers.name_of(key) + " has to be one line of ASCII");
    config.headers.emplace_back(key, std::move(value));
  }
}

}  // namespace

std::optional<std::chrono::nanoseconds> go_duration(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 7> kUnits{{{"ns", 1},
                                                                              {"us", 1e3},
                                                                              {"\u00b5s", 1e3},
                                                                              {"ms", 1e6},
                                                                              {"s", 1e9},
                                                                              {"m", 6e10},
                                                                              {"h", 3.6e12}}};
  if (text == "0") return std::chrono::nanoseconds(0);
  if (text.empty()) return std::nullopt;
  double sum = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0)) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const std::size_t length = std::min(text.find_first_of("0123456789."), text.size());
    const auto* unit = std::ranges::find(kUnits, text.substr(0, length),
                                         [](const auto& pair) { return pair.first; });
    if (unit == kUnits.end()) return std::nullopt;
    sum += number * unit->second;
    text.remove_prefix(length);
  }
  constexpr double kLongest = 9e18;  // what 64 bits hold
  if (!(sum < kLongest)) return std::nullopt;
  return std::chrono::nanoseconds(std::llround(sum));
}

WebConfig read_web_config(const std::filesystem::path& file) {
  try {
    WebConfig config;
    ConfigFiles files(file.parent_path());
    const YamlSection all(YAML::Load(files.text_of(file)), "");
    all.allow({"tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"});
    if (all.has("tls_server_config")) take_tls(all.section("tls_server_config"), config, files);
    take_headers(all.section("http_server_config"), config);
    take_users(all.node("basic_auth_users"), config);
    take_limit(all.section("rate_limit"), config);
    config.files = files.all();
    return config;
  } catch (const YAML::Exception& error) {
    throw std::runtime_error("web_config " + file.string() + ": " + error.what());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("web_config " + file.string() + ": " + error.what());
  }
}

}  // namespace gradvane::exporters
