#pragma once
// What libgradvane_tls.so gives: TLS and bcrypt, with an OpenSSL of its own inside that no other library can see. It is
// loaded where a web config asks for it, and nowhere else.
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporters/http/access/web_access.hpp"

namespace gradvane::exporters {

/// Which clients' certificates a server asks for, as Go's crypto/tls names it.
enum class ClientAuth : std::uint8_t {
  none,
  request,      ///< looks at none
  require_any,  ///< one has to come; it is not verified
  verify_if_given,
  require_and_verify,
};

struct TlsSettings {
  std::string certificate = {};  ///< PEM, with its chain
  std::string key = {};          ///< PEM, without a passphrase
  std::string client_ca = {};    ///< PEM; empty: none
  ClientAuth client_auth = ClientAuth::none;
  std::vector<std::string> client_names =
      {};                ///< one of which a client's certificate must have as a SAN; empty: any
  int min_version = 12;  ///< 12 or 13
  int max_version = 13;
  std::vector<std::string> cipher_suites =
      {};  ///< of TLS 1.2, by their IANA names; empty: OpenSSL's
  std::vector<std::string> curves =
      {};                      ///< CurveP256, CurveP384, CurveP521, X25519; empty: OpenSSL's
  bool server_chooses = true;  ///< among cipher suites that both know
};

/// The versions of TLS, as Go's crypto/tls names them.
inline constexpr std::array<std::pair<std::string_view, int>, 2> kTlsVersions{
    {{"TLS12", 12}, {"TLS13", 13}}};

/// For a connection that we make.
struct TlsClientSettings {
  std::string ca = {};           ///< PEM of those whose word counts
  std::string certificate = {};  ///< PEM, with its chain; empty: none
  std::string key = {};          ///< PEM, without a passphrase
  std::string name = {};         ///< host name or address that the server's certificate must be for
  bool verifies = true;          ///< false: any server will do
  int min_version = 12;          ///< 12 or 13
  int max_version = 13;
};

/// What connections with one certificate share.
class TlsServer {
 public:
  TlsServer() = default;
  virtual ~TlsServer() = default;
  TlsServer(const TlsServer&) = delete;  // owns a private key
  TlsServer& operator=(const TlsServer&) = delete;
  /// Null without memory.
  [[nodiscard]] virtual std::unique_ptr<TlsSession> session() = 0;
};

class TlsLibrary {
 public:
  TlsLibrary() = default;
  virtual ~TlsLibrary() = default;
  TlsLibrary(const TlsLibrary&) = delete;
  TlsLibrary& operator=(const TlsLibrary&) = delete;
  /// @param error  what to change, where the result is null
  [[nodiscard]] virtual std::unique_ptr<TlsServer> server(const TlsSettings& settings,
                                                          std::string& error) const = 0;
  /// @param error  what to change, where the result is null
  [[nodiscard]] virtual std::unique_ptr<TlsClientSession> client(const TlsClientSettings& settings,
                                                                 std::string& error) const = 0;
  /// `hash` is a bcrypt hash, which says itself how long this takes: 70 ms for cost 10, twice that for each above.
  [[nodiscard]] virtual bool fits(const std::string& password, const std::string& hash) const = 0;
  /// SHA-256, of 32 bytes.
  [[nodiscard]] virtual std::string digest(const std::string& text) const = 0;
  /// Unpredictable bytes. Empty: there are none to be had.
  [[nodiscard]] virtual std::string random(std::size_t count) const = 0;
};

/// Both sides are built together: another number means another file. The function is gradvane_tls_library().
inline constexpr int kTlsLibraryVersion = 2;
using TlsLibraryFunction = const TlsLibrary* (*)(int version);

/// Lives as long as the process. Throws std::runtime_error, with what to change, where the library is not there.
[[nodiscard]] const TlsLibrary& tls_library();

}  // namespace gradvane::exporters
