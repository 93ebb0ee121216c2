#include "exporters/web/http_config.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <boost/beast/core/detail/base64.hpp>
#include <stdexcept>
#include <string_view>

#include "exporters/web/config_files.hpp"
#include "exporters/web/yaml_section.hpp"

namespace gradvane::exporters {
namespace {

std::string base64(std::string_view text) {
  namespace base64 = boost::beast::detail::base64;
  std::string made(base64::encoded_size(text.size()), '\0');
  made.resize(base64::encode(made.data(), text.data(), text.size()));
  return made;
}

/// Files of secrets end with a newline, as people write them.
std::string secret(const YamlSection& section, const char* key, const char* file_key,
                   ConfigFiles& files) {
  std::string text = files.text_of(section, key, file_key);
  const auto end = text.find_last_not_of(" \t\r\n");
  text.erase(end == std::string::npos ? 0 : end + 1);
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  if (!std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c != '\x7f'; }))
    refuse(section.name_of(key) + " has more than one line, or control characters");
  return text;
}

void take_authorization(const YamlSection& all, HttpConfig& config, ConfigFiles& files) {
  const int count = static_cast<int>(all.has("basic_auth")) +
                    static_cast<int>(all.has("authorization")) +
                    static_cast<int>(all.has("bearer_token") || all.has("bearer_token_file"));
  if (count > 1)
    refuse("basic_auth, authorization and bearer_token exclude each other; one of them will do");
  if (all.has("basic_auth")) {
    const YamlSection basic = all.section("basic_auth");
    basic.allow({"username", "username_file", "password", "password_file"});
    const std::string user = secret(basic, "username", "username_file", files);
    if (user.find(':') != std::string::npos) refuse("basic_auth.username: a name has no colon");
    config.authorization =
        "Basic " + base64(user + ':' + secret(basic, "password", "password_file", files));
  }
  if (all.has("authorization")) {
    const YamlSection given = all.section("authorization");
    given.allow({"type", "credentials", "credentials_file"});
    const std::string type = given.text("type");
    if (type == "Basic" || type == "basic")
      refuse("authorization.type: for Basic there is basic_auth");
    if (type.find_first_of(" \t\r\n") != std::string::npos)
      refuse("authorization.type has to be one word");
    const std::string credentials = secret(given, "credentials", "credentials_file", files);
    if (credentials.empty()) refuse("authorization.credentials is not there");
    config.authorization = (type.empty() ? "Bearer" : type) + ' ' + credentials;
  }
  if (const std::string token = secret(all, "bearer_token", "bearer_token_file", files);
      !token.empty())
    config.authorization = "Bearer " + token;
}

void take_tls(const YamlSection& tls, HttpConfig& config, ConfigFiles& files) {
  tls.allow({"ca", "ca_file", "cert", "cert_file", "key", "key_file", "server_name",
             "insecure_skip_verify", "min_version", "max_version"});
  TlsClientSettings& settings = config.tls;
  settings.ca = files.text_of(tls, "ca", "ca_file");
  settings.certificate = files.text_of(tls, "cert", "cert_file");
  settings.key = files.text_of(tls, "key", "key_file");
  settings.name = tls.text("server_name");
  settings.verifies = !tls.flag("insecure_skip_verify", false);
  settings.min_version = tls.choice("min_version", 12, kTlsVersions);
  settings.max_version = tls.choice("max_version", 13, kTlsVersions);
  if (settings.certificate.empty() != settings.key.empty())
    refuse(tls.name_of(settings.key.empty() ? "key_file" : "cert_file") +
           " is not there; a certificate and its key come together");
  if (settings.min_version > settings.max_version)
    refuse(tls.name_of("min_version") + " is above max_version");
}

HttpConfig read(ConfigFiles& files, const std::filesystem::path& file) {
  HttpConfig config;
  const YamlSection all(YAML::Load(files.text_of(file)), "");
  all.allow({"basic_auth", "authorization", "bearer_token", "bearer_token_file", "tls_config",
             "follow_redirects", "enable_http2"});
  (void)all.flag("follow_redirects", true);
  (void)all.flag("enable_http2", true);
  take_authorization(all, config, files);
  if (all.has("tls_config")) take_tls(all.section("tls_config"), config, files);
  return config;
}

}  // namespace

HttpConfig read_http_config(const std::filesystem::path& file) {
  try {
    ConfigFiles files(file.parent_path());
    return read(files, file);
  } catch (const std::runtime_error& error) {  // YAML's too
    throw std::runtime_error("http config " + file.string() + ": " + error.what());
  }
}

}  // namespace gradvane::exporters
