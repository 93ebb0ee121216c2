#pragma once
// What the parts of libgradvane_tls.so ask of OpenSSL. Nothing here touches a socket or a file.
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gradvane::exporters {

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
using Session = std::unique_ptr<SSL, Freed<SSL_free>>;

/// What OpenSSL says went wrong, without its numbers; it is forgotten.
[[nodiscard]] std::string last_error();
[[nodiscard]] std::invalid_argument not_allowed(const std::string& what);

/// All certificates of a PEM text; at least one. Throws std::invalid_argument.
[[nodiscard]] std::vector<Certificate> certificates_of(const std::string& text,
                                                       const std::string& what);
/// The certificate with its chain, and its key, as PEM. Throws std::invalid_argument.
void take_certificate(SSL_CTX* context, const std::string& certificate, const std::string& key);
/// @param lowest, highest  12 or 13
void set_versions(SSL_CTX* context, int lowest, int highest);

/// An address in the one way in which the system writes it. All else stays as it is.
[[nodiscard]] std::string normal(const std::string& name);
/// As the system writes it. Empty where it is none.
[[nodiscard]] std::string address_of(std::span<const unsigned char> bytes);

}  // namespace gradvane::exporters
