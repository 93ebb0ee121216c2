#include "exporters/web/configured_push.hpp"

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "exporters/web/config_files.hpp"
#include "exporters/web/http_config.hpp"

namespace gradvane::exporters {
namespace {

/// Where distributions of Linux keep the certificates that they trust, as Go's crypto/x509 looks for them.
constexpr std::array kSystemFiles{
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL
    "/etc/ssl/cert.pem",                                  // Alpine
};

std::filesystem::path find_system_ca() {
  if (const char* named = std::getenv("SSL_CERT_FILE"); named != nullptr && *named != '\0')
    return std::filesystem::absolute(named);
  std::error_code ignored;
  for (const char* file : kSystemFiles)
    if (std::filesystem::is_regular_file(file, ignored)) return file;
  return {};
}

}  // namespace

ConfiguredPush::ConfiguredPush(const AlertUrl& url, const std::filesystem::path& file)
    : file_(file.empty() ? file : std::filesystem::absolute(file)), system_ca_(find_system_ca()) {
  (void)way(url);
}

PushAccess::Way ConfiguredPush::way(const AlertUrl& url) {
  HttpConfig config;
  if (!file_.empty()) config = read_http_config(file_);
  Way found{.authorization = std::move(config.authorization)};
  if (!url.has_tls) return found;
  TlsClientSettings& tls = config.tls;
  if (tls.name.empty()) tls.name = url.host;
  if (tls.ca.empty() && tls.verifies) {
    if (system_ca_.empty())
      throw std::runtime_error(
          "no file with the system's certificates was found; name one as tls_config.ca_file in the "
          "file of alertmanager_http_config, or in SSL_CERT_FILE");
    tls.ca = ConfigFiles({}).text_of(system_ca_);
  }
  std::string error;
  found.tls = tls_library().client(tls, error);
  if (!found.tls) throw std::runtime_error("TLS for " + url.authority + ": " + error);
  return found;
}

}  // namespace gradvane::exporters
