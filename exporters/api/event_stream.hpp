#pragma once
// What one viewer of the page is sent as it happens, as server-sent events (WHATWG HTML, 9.2).
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "exporters/board/status_board.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// Nothing is queued for a viewer: each time there is room, it gets what is new since the last time. Who
/// cannot keep up gets the newest steps, and a gap before them.
class EventStream {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param optimizer  absent: of whichever leads the run
  /// @param since      cursor of StatusBoard::steps_of()
  EventStream(std::shared_ptr<const StatusBoard> board, std::optional<std::int32_t> optimizer,
              std::uint64_t since);

  /// The events since the last call; empty where there are none.
  [[nodiscard]] std::string next(Clock::time_point now);

 private:
  std::shared_ptr<const StatusBoard> board_;
  std::optional<std::int32_t> optimizer_;
  std::uint64_t since_;
  std::shared_ptr<const Status> shown_;
  Clock::time_point status_at_;
  Clock::time_point said_at_;
  bool has_begun_ = false;
};

/// ?since= &optimizer=; a Last-Event-ID of this same process goes before `since`.
[[nodiscard]] HttpResponse event_stream(std::shared_ptr<const StatusBoard> board,
                                        const HttpRequest& request);

}  // namespace gradvane::exporters
