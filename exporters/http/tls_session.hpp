#pragma once
// TLS of one connection, without its socket.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gradvane::exporters {

/// One half of a TLS connection. It sees no socket: bytes of the network go in and come out.
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

/// The client's half. It begins with shake_hands(), again after all that comes in, until that is done.
class TlsClientSession : public TlsSession {
 public:
  [[nodiscard]] virtual Progress shake_hands() = 0;
  /// Why it failed, for a person; empty if it did not.
  [[nodiscard]] virtual std::string error() const = 0;
};

}  // namespace gradvane::exporters
