#pragma once
// A server that answers every request in a way that a test chooses, good or bad.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace gradvane::exporters::fakes {

enum class Manner : std::uint8_t {
  whole,         ///< status and body, at once
  silent,        ///< reads the request, and then nothing
  closes,        ///< reads the request, and hangs up
  drips,         ///< its header, a byte at a time, for ever
  floods,        ///< status, and a body without end
  endless_line,  ///< status, and the size of a chunk whose line has no end
};

struct Behaviour {
  Manner manner = Manner::whole;
  int status = 200;
  std::string body = {};
};

struct Received {
  std::string head;  ///< request line and headers
  std::string body;

  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body); }
};

class AnsweringServer {
 public:
  explicit AnsweringServer(Behaviour behaviour = {});
  ~AnsweringServer();
  AnsweringServer(const AnsweringServer&) = delete;  // its threads point to it
  AnsweringServer& operator=(const AnsweringServer&) = delete;

  /// From the next request on.
  void behave(Behaviour behaviour);
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Whole requests so far.
  [[nodiscard]] std::vector<Received> received() const;
  /// Waits for so many; false where they do not come.
  bool wait_for(std::size_t requests) const;

 private:
  void accept_all();
  void serve(int descriptor);
  void answer(int descriptor, const Behaviour& behaviour);
  void send_for_ever(int descriptor, char what) const;

  int listening_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> is_over_ = false;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Behaviour behaviour_;
  std::vector<Received> received_;
  std::vector<std::jthread> connections_;
  std::jthread acceptor_;
};

}  // namespace gradvane::exporters::fakes
