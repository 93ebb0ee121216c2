// libgradvane_tls.so. Nothing here touches a socket or a file.
#include <arpa/inet.h>
#include <crypt.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "exporters/web/tls.hpp"

namespace gradvane::exporters {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;
using Session = std::unique_ptr<SSL, Freed<SSL_free>>;

constexpr std::size_t kDigest = 32;

/// What OpenSSL says went wrong, without its numbers.
std::string last_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* reason = ::ERR_reason_error_string(code);
  return reason == nullptr ? "it cannot be read" : reason;
}

std::invalid_argument not_allowed(const std::string& what) {
  return std::invalid_argument(what + ": " + last_error());
}

Bio reader_of(const std::string& text) {
  return Bio(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

int no_passphrase(char* /*buffer*/, int /*size*/, int /*is_writing*/, void* /*unused*/) {
  return -1;
}

/// All certificates of a PEM text.
std::vector<Certificate> certificates_of(const std::string& text, const std::string& what) {
  const Bio bio = reader_of(text);
  std::vector<Certificate> all;
  while (X509* next = ::PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr))
    all.emplace_back(next);
  const unsigned long error = ::ERR_peek_last_error();
  if (all.empty() || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) throw not_allowed(what);
  ::ERR_clear_error();
  return all;
}

std::string text_of(const ASN1_STRING* text) {
  const unsigned char* data = ::ASN1_STRING_get0_data(text);
  return {reinterpret_cast<const char*>(data),
          static_cast<std::size_t>(::ASN1_STRING_length(text))};
}

/// As the system writes it. Empty where it is none.
std::string address_of(std::span<const unsigned char> bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = bytes.size() == sizeof(in6_addr) ? AF_INET6 : AF_INET;
  if (bytes.size() != sizeof(in6_addr) && bytes.size() != sizeof(in_addr)) return {};
  const char* written = ::inet_ntop(family, bytes.data(), text.data(), text.size());
  return written == nullptr ? std::string() : std::string(written);
}

/// An address may be written in several ways. All else stays as it is.
std::string normal(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  const bool is_v6 = ::inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
  return is_v6 ? address_of(bytes) : name;
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

class OpenSession final : public TlsSession {
 public:
  OpenSession(SSL_CTX* context, std::shared_ptr<const std::vector<std::string>> client_names)
      : client_names_(std::move(client_names)), ssl_(::SSL_new(context)) {
    BIO* in = ::BIO_new(::BIO_s_mem());
    BIO* out = ::BIO_new(::BIO_s_mem());
    if (!ssl_ || in == nullptr || out == nullptr) {
      ::BIO_free(in);
      ::BIO_free(out);
      throw std::bad_alloc();
    }
    ::SSL_set_bio(ssl_.get(), in, out);  // which owns both
    ::SSL_set_accept_state(ssl_.get());
  }

  void take(std::span<const char> bytes) override {
    if (::BIO_write(::SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size())) !=
        static_cast<int>(bytes.size()))
      is_over_ = true;
  }

  Progress read(std::span<char> text, std::size_t& count) override {
    count = 0;
    if (is_over_) return Progress::failed;
    ::ERR_clear_error();
    if (::SSL_read_ex(ssl_.get(), text.data(), text.size(), &count) == 1) return Progress::done;
    const int error = ::SSL_get_error(ssl_.get(), 0);
    if (error == SSL_ERROR_WANT_READ) return Progress::wants_input;
    if (error == SSL_ERROR_ZERO_RETURN) return Progress::ended;
    is_over_ = true;
    was_plain_ = ERR_GET_REASON(::ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    ::ERR_clear_error();
    return Progress::failed;
  }

  bool write(std::span<const char> text) override {
    std::size_t written = 0;
    if (is_over_ || text.empty()) return !is_over_;
    ::ERR_clear_error();
    is_over_ = ::SSL_write_ex(ssl_.get(), text.data(), text.size(), &written) != 1 ||
               written != text.size();
    ::ERR_clear_error();
    return !is_over_;
  }

  void end() override {
    if (!is_over_) (void)::SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
  }

  std::string outgoing() override {
    BIO* bio = ::SSL_get_wbio(ssl_.get());
    std::string bytes(::BIO_ctrl_pending(bio), '\0');
    if (!bytes.empty())
      bytes.resize(static_cast<std::size_t>(
          std::max(0, ::BIO_read(bio, bytes.data(), static_cast<int>(bytes.size())))));
    return bytes;
  }

  [[nodiscard]] bool has_pending() const override {
    return !is_over_ && (::SSL_has_pending(ssl_.get()) == 1 ||
                         ::BIO_ctrl_pending(::SSL_get_rbio(ssl_.get())) > 0);
  }
  [[nodiscard]] std::size_t unsent() const override {
    return ::BIO_ctrl_pending(::SSL_get_wbio(ssl_.get()));
  }
  [[nodiscard]] bool was_plain_http() const override { return was_plain_; }

 private:
  std::shared_ptr<const std::vector<std::string>> client_names_;  ///< which the context points to
  Session ssl_;
  bool is_over_ = false;
  bool was_plain_ = false;
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
    ::SSL_CTX_set_min_proto_version(context, version_of(settings.min_version));
    ::SSL_CTX_set_max_proto_version(context, version_of(settings.max_version));
    ::SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
    take_certificate(settings);
    take_clients(settings);
    take_ciphers(settings);
    take_curves(settings);
  }

  std::unique_ptr<TlsSession> session() override try {
    return std::make_unique<OpenSession>(context_.get(), client_names_);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }

 private:
  static std::vector<std::string> normal_names(const TlsSettings& settings) {
    std::vector<std::string> names;
    for (const std::string& name : settings.client_names) names.push_back(normal(name));
    return names;
  }

  static int version_of(int version) { return version == 13 ? TLS1_3_VERSION : TLS1_2_VERSION; }

  void take_certificate(const TlsSettings& settings) {
    auto chain = certificates_of(settings.certificate, "the certificate");
    if (::SSL_CTX_use_certificate(context_.get(), chain.front().get()) != 1)
      throw not_allowed("the certificate");
    for (std::size_t i = 1; i < chain.size(); ++i)
      if (::SSL_CTX_add1_chain_cert(context_.get(), chain[i].get()) != 1)
        throw not_allowed("the certificate's chain");
    const Bio bio = reader_of(settings.key);
    const Key key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
    if (!key) throw not_allowed("the key, which must have no passphrase");
    if (::X509_check_private_key(chain.front().get(), key.get()) != 1)
      throw not_allowed("the key is not that of the certificate");
    if (::SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) throw not_allowed("the key");
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

class OpenLibrary final : public TlsLibrary {
 public:
  std::unique_ptr<TlsServer> server(const TlsSettings& settings, std::string& error) const override
      try {
    return std::make_unique<OpenServer>(settings);
  } catch (const std::exception& wrong) {
    error = wrong.what();
    return nullptr;
  }

  bool fits(const std::string& password, const std::string& hash) const override {
    if (password.find('\0') != std::string::npos) return false;
    crypt_data data{};
    // Not crypt_r: sanitizers put a function of that name in its place, which looks for the real one elsewhere.
    const char* made = ::crypt_rn(password.c_str(), hash.c_str(), &data, sizeof data);
    const bool is_same = made != nullptr && std::strlen(made) == hash.size() &&
                         ::CRYPTO_memcmp(made, hash.data(), hash.size()) == 0;
    ::OPENSSL_cleanse(&data, sizeof data);
    return is_same;
  }

  std::string digest(const std::string& text) const override {
    std::array<unsigned char, kDigest> made{};
    unsigned length = 0;
    if (::EVP_Digest(text.data(), text.size(), made.data(), &length, ::EVP_sha256(), nullptr) != 1)
      throw std::bad_alloc();
    return {reinterpret_cast<const char*>(made.data()), made.size()};
  }

  std::string random(std::size_t count) const override {
    std::string bytes(count, '\0');
    const bool is_made =
        ::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) == 1;
    return is_made ? bytes : std::string();
  }
};

}  // namespace
}  // namespace gradvane::exporters

extern "C" __attribute__((visibility("default"))) const gradvane::exporters::TlsLibrary*
gradvane_tls_library(int version) {
  if (version != gradvane::exporters::kTlsLibraryVersion) return nullptr;
  // No handler at the end of the program, which may end in the middle of anything, and no settings of its user's.
  if (::OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) != 1)
    return nullptr;
  static const auto& library = *new gradvane::exporters::OpenLibrary;
  return &library;
}
