#include "exporters/web/tls/open_client.hpp"

#include <utility>

#include "exporters/web/tls/open_session.hpp"

namespace gradvane::exporters {
namespace {

class OpenClient final : public OpenSession<TlsClientSession> {
 public:
  OpenClient(Context context, const TlsClientSettings& settings)
      : OpenSession(context.get()), context_(std::move(context)) {
    ::SSL_set_connect_state(ssl());
    expect(settings.name);
  }

  Progress shake_hands() override {
    if (is_over()) return Progress::failed;
    ::ERR_clear_error();
    const int result = ::SSL_do_handshake(ssl());
    return result == 1 ? Progress::done : progress_after(result);
  }

  [[nodiscard]] std::string error() const override {
    if (!is_over()) return {};
    const long verdict = ::SSL_get_verify_result(ssl());
    if (verdict != X509_V_OK)
      return std::string("the certificate: ") + ::X509_verify_cert_error_string(verdict);
    if (openssl_error() == "wrong version number") return "what answers there speaks no TLS";
    return openssl_error();
  }

 private:
  /// A server with several certificates learns which one is meant; addresses are not said (RFC 6066, 3).
  void expect(const std::string& name) {
    X509_VERIFY_PARAM* wanted = ::SSL_get0_param(ssl());
    if (::X509_VERIFY_PARAM_set1_ip_asc(wanted, name.c_str()) == 1) return;
    ::ERR_clear_error();
    ::X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (::X509_VERIFY_PARAM_set1_host(wanted, name.c_str(), name.size()) != 1 ||
        ::SSL_set_tlsext_host_name(ssl(), name.c_str()) != 1)
      throw not_allowed("the name '" + name + "'");
  }

  Context context_;
};

}  // namespace

std::unique_ptr<TlsClientSession> open_client(const TlsClientSettings& settings) {
  Context context(::SSL_CTX_new(::TLS_client_method()));
  if (!context) throw not_allowed("TLS");
  ::SSL_CTX_set_options(context.get(),
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  ::SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  set_versions(context.get(), settings.min_version, settings.max_version);
  if (!settings.certificate.empty())
    take_certificate(context.get(), settings.certificate, settings.key);
  if (settings.verifies) {
    X509_STORE* store = ::SSL_CTX_get_cert_store(context.get());
    for (const auto& ca : certificates_of(settings.ca, "the servers' CA"))
      if (::X509_STORE_add_cert(store, ca.get()) != 1) throw not_allowed("the servers' CA");
    // Any certificate that is named is trusted, as in Go: a server's own, too.
    ::X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
    ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  return std::make_unique<OpenClient>(std::move(context), settings);
}

}  // namespace gradvane::exporters
