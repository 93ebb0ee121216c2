#pragma once
// A question to a rank's endpoint on this node, over its unix socket.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "exporters/files/own_descriptor.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// Begun when it is built, and answered while wait_for() runs. Nothing here waits otherwise. One thread.
class RankQuestion {
 public:
  /// @param directory  that of the sockets, open
  /// @param socket     its name there
  /// @param target     path and query
  /// @param asked      for the headers that a rank looks at
  RankQuestion(int directory, const std::string& socket, const std::string& target,
               const HttpRequest& asked);
  ~RankQuestion();
  RankQuestion(RankQuestion&&) noexcept;
  RankQuestion& operator=(RankQuestion&&) = delete;

  /// Nobody listens on the socket: the rank is gone.
  [[nodiscard]] bool is_refused() const noexcept;
  [[nodiscard]] bool is_over() const noexcept;

  /// The answer, which is taken: absent if it is not complete. One that goes on is a stream of the result's, which
  /// ends when the rank does.
  [[nodiscard]] std::optional<HttpResponse> take_answer();

 private:
  friend void wait_for(std::span<RankQuestion> questions,
                       std::chrono::steady_clock::time_point until);
  struct State;
  std::shared_ptr<State> state_;  ///< a stream holds it too
};

/// Until all are over, or it is `until`.
void wait_for(std::span<RankQuestion> questions, std::chrono::steady_clock::time_point until);

}  // namespace gradvane::exporters
