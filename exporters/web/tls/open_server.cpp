#include "exporters/web/tls/open_server.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "exporters/web/tls/open_session.hpp"

namespace gradvane::exporters {
namespace {

using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;

std::string text_of(const ASN1_STRING* text) {
  const unsigned char* data = ::ASN1_STRING_get0_data(text);
  return {reinterpret_cast<const char*>(data),
          static_cast<std::size_t>(::ASN1_STRING_length(text))};
}

/// Names, mail and IP addresses and URIs that a certificate is for.
std::vector<std::string> names_of(const X509* certificate) {
  std::vector<std::string> all;
  const Names names(static_cast<GENERAL_NAMES*>(
      ::X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < ::sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const auto* value = static_cast<const ASN1_STRING*>(
        ::GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    if (type == GEN_DNS || type == GEN_EMAIL || type == GEN_URI) all.push_back(text_of(value));
    if (type == GEN_IPADD)
      all.push_back(address_of(
          {::ASN1_STRING_get0_data(value), static_cast<std::size_t>(::ASN1_STRING_length(value))}));
  }
  return all;
}

/// The place of the settings' names in a context.
int names_index() {
  static const int kIndex = ::SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return kIndex;
}

/// Called by OpenSSL's C: nothing may be thrown through it.
int look_at_client(int is_good, X509_STORE_CTX* store, bool has_to_be_good) noexcept try {
  if (has_to_be_good && is_good == 0) return 0;
  if (::X509_STORE_CTX_get_error_depth(store) != 0) return 1;
  const auto* ssl = static_cast<const SSL*>(
      ::X509_STORE_CTX_get_ex_data(store, ::SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto& wanted = *static_cast<const std::vector<std::string>*>(
      ::SSL_CTX_get_ex_data(::SSL_get_SSL_CTX(ssl), names_index()));
  if (wanted.empty()) return 1;
  const auto names = names_of(::X509_STORE_CTX_get_current_cert(store));
  const bool is_wanted = std::ranges::any_of(names, [&](const std::string& name) {
    return std::ranges::find(wanted, name) != wanted.end();
  });
  if (!is_wanted) ::X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return is_wanted ? 1 : 0;
} catch (...) {
  ::X509_STORE_CTX_set_error(store, X509_V_ERR_OUT_OF_MEM);
  return 0;
}

int verified(int is_good, X509_STORE_CTX* store) { return look_at_client(is_good, store, true); }
int unverified(int is_good, X509_STORE_CTX* store) { return look_at_client(is_good, store, false); }

/// Prometheus offers HTTP/2 first.
int choose_protocol(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* length,
                    const unsigned char* offered, unsigned int offered_length, void* /*unused*/) {
  static constexpr std::array<unsigned char, 9> kHttp{8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* found = nullptr;
  if (::SSL_select_next_proto(&found, length, kHttp.data(), kHttp.size(), offered,
                              offered_length) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

class ServerSession final : public OpenSession<TlsSession> {
 public:
  ServerSession(SSL_CTX* context, std::shared_ptr<const std::vector<std::string>> client_names)
      : OpenSession(context), client_names_(std::move(client_names)) {
    ::SSL_set_accept_state(ssl());
  }

 private:
  std::shared_ptr<const std::vector<std::string>> client_names_;  ///< which the context points to
};

class OpenServer final : public TlsServer {
 public:
  explicit OpenServer(const TlsSettings& settings)
      : client_names_(std::make_shared<const std::vector<std::string>>(normal_names(settings))),
        context_(::SSL_CTX_new(::TLS_server_method())) {
    if (!context_) throw not_allowed("TLS");
    SSL_CTX* context = context_.get();
    ::SSL_CTX_set_ex_data(context, names_index(),
                          const_cast<std::vector<std::string>*>(client_names_.get()));
    // Renegotiation and compression are gone from TLS 1.3; sessions are not kept, as clients stay connected.
    ::SSL_CTX_set_options(context,
                          SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    if (settings.server_chooses) ::SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
    ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    ::SSL_CTX_set_num_tickets(context, 0);
    ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    set_versions(context, settings.min_version, settings.max_version);
    ::SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
    take_certificate(context, settings.certificate, settings.key);
    take_clients(settings);
    take_ciphers(settings);
    take_curves(settings);
  }

  std::unique_ptr<TlsSession> session() override try {
    return std::make_unique<ServerSession>(context_.get(), client_names_);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }

 private:
  static std::vector<std::string> normal_names(const TlsSettings& settings) {
    std::vector<std::string> names;
    for (const std::string& name : settings.client_names) names.push_back(normal(name));
    return names;
  }

  void take_clients(const TlsSettings& settings) {
    if (!settings.client_ca.empty()) {
      X509_STORE* store = ::SSL_CTX_get_cert_store(context_.get());
      for (const auto& ca : certificates_of(settings.client_ca, "the clients' CA"))
        if (::X509_STORE_add_cert(store, ca.get()) != 1 ||
            ::SSL_CTX_add_client_CA(context_.get(), ca.get()) != 1)
          throw not_allowed("the clients' CA");
    }
    const ClientAuth auth = settings.client_auth;
    const bool has_to_come =
        auth == ClientAuth::require_any || auth == ClientAuth::require_and_verify;
    const bool has_to_be_good =
        auth == ClientAuth::verify_if_given || auth == ClientAuth::require_and_verify;
    if (auth == ClientAuth::none)
      ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
    else
      ::SSL_CTX_set_verify(context_.get(),
                           SSL_VERIFY_PEER | (has_to_come ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                           has_to_be_good ? verified : unverified);
  }

  /// Those of TLS 1.3 cannot be chosen, in Go either.
  void take_ciphers(const TlsSettings& settings) {
    if (settings.cipher_suites.empty()) return;
    if (::SSL_CTX_set_cipher_list(context_.get(), "ALL") != 1) throw not_allowed("cipher_suites");
    std::string chosen;
    for (const std::string& wanted : settings.cipher_suites) {
      const SSL_CIPHER* found = nullptr;
      const STACK_OF(SSL_CIPHER)* all = ::SSL_CTX_get_ciphers(context_.get());
      for (int i = 0; i < sk_SSL_CIPHER_num(all); ++i)
        if (wanted == ::SSL_CIPHER_standard_name(sk_SSL_CIPHER_value(all, i)))
          found = sk_SSL_CIPHER_value(all, i);
      if (found == nullptr)
        throw std::invalid_argument("cipher_suites: '" + wanted + "' is not known");
      if (std::string_view(::SSL_CIPHER_get_version(found)) != "TLSv1.3")
        chosen.append(chosen.empty() ? "" : ":").append(::SSL_CIPHER_get_name(found));
    }
    if (chosen.empty()) ::SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
    if (!chosen.empty() && ::SSL_CTX_set_cipher_list(context_.get(), chosen.c_str()) != 1)
      throw not_allowed("cipher_suites");
  }

  void take_curves(const TlsSettings& settings) {
    static constexpr std::array<std::pair<std::string_view, const char*>, 4> kCurves{
        {{"CurveP256", "P-256"},
         {"CurveP384", "P-384"},
         {"CurveP521", "P-521"},
         {"X25519", "X25519"}}};
    std::string chosen;
    for (const std::string& wanted : settings.curves) {
      const auto* found =
          std::ranges::find(kCurves, wanted, [](const auto& pair) { return pair.first; });
      if (found == kCurves.end())
        throw std::invalid_argument(
            "curve_preferences: '" + wanted +
            "' is not known; CurveP256, CurveP384, CurveP521 and X25519 are");
      chosen.append(chosen.empty() ? "" : ":").append(found->second);
    }
    if (!chosen.empty() && ::SSL_CTX_set1_groups_list(context_.get(), chosen.c_str()) != 1)
      throw not_allowed("curve_preferences");
  }

  /// A handshake may still be on when a renewed certificate has taken this server's place.
  std::shared_ptr<const std::vector<std::string>> client_names_;
  Context context_;
};

}  // namespace

std::unique_ptr<TlsServer> open_server(const TlsSettings& settings) {
  return std::make_unique<OpenServer>(settings);
}

}  // namespace gradvane::exporters
