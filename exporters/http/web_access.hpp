#pragma once
// What stands between the network and the HTTP server, where a web config asks for it: TLS, users, a limit.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradvane::exporters {

/// The server's half of one TLS connection. It sees no socket: bytes of the network go in and come out.
/// One thread.
class TlsSession {
 public:
  enum class Progress : std::uint8_t {
    done,
    wants_input,  ///< more of the network is needed
    ended,        ///< the other side has said that it sends no more
    failed,       ///< what came is no TLS, or not allowed; the session is over
  };
  TlsSession() = default;
  virtual ~TlsSession() = default;
  TlsSession(const TlsSession&) = delete;  // owns a connection's keys
  TlsSession& operator=(const TlsSession&) = delete;

  /// Bytes that came from the network.
  virtual void take(std::span<const char> bytes) = 0;
  /// What they say. The handshake is done on the way.
  /// @param count  how much of `text` was filled; 0 unless done
  [[nodiscard]] virtual Progress read(std::span<char> text, std::size_t& count) = 0;
  /// Precondition: something has been read. False if the session is over.
  [[nodiscard]] virtual bool write(std::span<const char> text) = 0;
  /// Says that we send no more.
  virtual void end() = 0;
  /// What is to be sent, which is taken.
  [[nodiscard]] virtual std::string outgoing() = 0;
  /// There is something to read without more input.
  [[nodiscard]] virtual bool has_pending() const = 0;
  /// Bytes that outgoing() would take.
  [[nodiscard]] virtual std::size_t unsent() const = 0;
  /// It failed because the other side speaks HTTP without TLS.
  [[nodiscard]] virtual bool was_plain_http() const = 0;
};

/// Threading: the constructor aside, the server's thread alone.
class WebAccess {
 public:
  /// Whether a request may be answered.
  enum class Verdict : std::uint8_t {
    yes,
    no,
    not_yet,  ///< its password is still to be checked: ask again, soon
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;
  WebAccess() = default;
  virtual ~WebAccess() = default;
  WebAccess(const WebAccess&) = delete;  // watches files
  WebAccess& operator=(const WebAccess&) = delete;

  /// The same for as long as it lives.
  [[nodiscard]] virtual bool has_tls() const noexcept = 0;
  /// Takes files that have changed. For each connection and each request; it looks once per second at most.
  virtual void look() = 0;
  /// For a fresh connection. Precondition: has_tls().
  [[nodiscard]] virtual std::unique_ptr<TlsSession> session() = 0;
  /// Takes one request from the limit.
  [[nodiscard]] virtual bool is_within_limit() = 0;
  [[nodiscard]] virtual bool has_users() const noexcept = 0;
  /// Precondition: has_users().
  /// @param peer           the address that asks, without its port: each gets its turn
  /// @param authorization  the header's value
  [[nodiscard]] virtual Verdict admits(std::string_view peer, std::string_view authorization) = 0;
  /// To be added to answers, or to stand in place of our own of that name.
  [[nodiscard]] virtual const Headers& headers() const noexcept = 0;
};

}  // namespace gradvane::exporters
