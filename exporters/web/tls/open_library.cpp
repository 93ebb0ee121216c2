// libgradvane_tls.so.
#include <crypt.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "exporters/web/tls.hpp"
#include "exporters/web/tls/open_client.hpp"
#include "exporters/web/tls/open_server.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::size_t kDigest = 32;

class OpenLibrary final : public TlsLibrary {
 public:
  std::unique_ptr<TlsServer> server(const TlsSettings& settings, std::string& error) const override
      try {
    return open_server(settings);
  } catch (const std::exception& wrong) {
    error = wrong.what();
    return nullptr;
  }

  std::unique_ptr<TlsClientSession> client(const TlsClientSettings& settings,
                                           std::string& error) const override try {
    return open_client(settings);
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
