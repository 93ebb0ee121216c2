#pragma once
// A socket that says exactly what a test wants said.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::exporters::fakes {

struct Answer {
  int status = 0;                                  ///< 0: the connection closed without an answer
  std::map<std::string, std::string> fields = {};  ///< names in lower case
  std::string body = {};
};

class RawClient {
 public:
  /// Connects to 127.0.0.1. is_open() is false where that fails.
  explicit RawClient(std::uint16_t port);
  /// Connects to a unix socket, by its path.
  explicit RawClient(const std::filesystem::path& socket);
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient& operator=(RawClient&&) = delete;

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  /// False where the other side has gone.
  bool send(std::string_view bytes);
  /// One answer; `has_body` false for HEAD. Waits at most `limit` for each piece. Without a length it goes
  /// on to the end of the connection.
  Answer receive(bool has_body = true, std::chrono::milliseconds limit = std::chrono::seconds(20));
  /// The other side closed within `limit`; what it still sent is thrown away.
  bool is_closed_within(std::chrono::milliseconds limit);
  void shut_down_sending() const;
  /// Closes with a reset instead of a farewell.
  void reset();
  void set_receive_buffer(int bytes) const;

 private:
  bool more(std::chrono::milliseconds limit);

  int descriptor_ = -1;
  std::string buffer_;
};

/// One request on a connection of its own.
[[nodiscard]] Answer get(RawClient client, const std::string& target,
                         const std::string& more_fields = {}, const std::string& method = "GET");
[[nodiscard]] Answer get(std::uint16_t port, const std::string& target,
                         const std::string& more_fields = {}, const std::string& method = "GET");

}  // namespace gradvane::exporters::fakes
