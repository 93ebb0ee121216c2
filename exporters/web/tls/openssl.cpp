#include "exporters/web/tls/openssl.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <array>

namespace gradvane::exporters {
namespace {

Bio reader_of(const std::string& text) {
  return Bio(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

int no_passphrase(char* /*buffer*/, int /*size*/, int /*is_writing*/, void* /*unused*/) {
  return -1;
}

}  // namespace

std::string last_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* reason = ::ERR_reason_error_string(code);
  return reason == nullptr ? "it cannot be read" : reason;
}

std::invalid_argument not_allowed(const std::string& what) {
  return std::invalid_argument(what + ": " + last_error());
}

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

void take_certificate(SSL_CTX* context, const std::string& certificate, const std::string& key) {
  auto chain = certificates_of(certificate, "the certificate");
  if (::SSL_CTX_use_certificate(context, chain.front().get()) != 1)
    throw not_allowed("the certificate");
  for (std::size_t i = 1; i < chain.size(); ++i)
    if (::SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1)
      throw not_allowed("the certificate's chain");
  const Bio bio = reader_of(key);
  const Key read(::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  if (!read) throw not_allowed("the key, which must have no passphrase");
  if (::X509_check_private_key(chain.front().get(), read.get()) != 1)
    throw not_allowed("the key is not that of the certificate");
  if (::SSL_CTX_use_PrivateKey(context, read.get()) != 1) throw not_allowed("the key");
}

void set_versions(SSL_CTX* context, int lowest, int highest) {
  const auto number = [](int version) { return version == 13 ? TLS1_3_VERSION : TLS1_2_VERSION; };
  ::SSL_CTX_set_min_proto_version(context, number(lowest));
  ::SSL_CTX_set_max_proto_version(context, number(highest));
}

std::string address_of(std::span<const unsigned char> bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = bytes.size() == sizeof(in6_addr) ? AF_INET6 : AF_INET;
  if (bytes.size() != sizeof(in6_addr) && bytes.size() != sizeof(in_addr)) return {};
  const char* written = ::inet_ntop(family, bytes.data(), text.data(), text.size());
  return written == nullptr ? std::string() : std::string(written);
}

std::string normal(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  const bool is_v6 = ::inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
  return is_v6 ? address_of(bytes) : name;
}

}  // namespace gradvane::exporters
