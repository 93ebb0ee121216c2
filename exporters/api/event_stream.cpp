#include "exporters/api/event_stream.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "exporters/api/api.hpp"
#include "exporters/api/history_api.hpp"
#include "exporters/api/json_answer.hpp"
#include "record/saturating.hpp"

namespace gradvane::exporters {
namespace {

using namespace std::chrono_literals;

constexpr auto kStatusEvery = 1s;
constexpr auto kSilence = 15s;  ///< proxies give up on a connection that says nothing for a minute
constexpr std::size_t kMostStepsInEvent = 1000;  ///< in one event

/// Milliseconds, so that it is exact as text. Says which process an event's id is of.
std::int64_t started_of(const StatusBoard& board) {
  const auto status = board.status();
  return status->run ? record::whole(status->run->start_time * 1000) : 0;
}

void append_event(std::string& out, std::string_view name, std::string_view data) {
  while (data.ends_with('\n')) data.remove_suffix(1);
  out.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
}

/// The cursor in an id of ours; absent where it is of another process, or of nobody.
std::optional<std::uint64_t> cursor_of(std::string_view id, std::int64_t started) {
  const std::string mine = std::to_string(started) + '-';
  if (!id.starts_with(mine)) return std::nullopt;
  id.remove_prefix(mine.size());
  std::uint64_t cursor = 0;
  const auto read = std::from_chars(id.data(), id.data() + id.size(), cursor);
  if (read.ec != std::errc() || read.ptr != id.data() + id.size()) return std::nullopt;
  return cursor;
}

}  // namespace

EventStream::EventStream(std::shared_ptr<const StatusBoard> board,
                         std::optional<std::int32_t> optimizer, std::uint64_t since)
    : board_(std::move(board)), optimizer_(optimizer), since_(since) {}

std::string EventStream::next(Clock::time_point now) {
  std::string events;
  if (!has_begun_) events = "retry: 2000\n\n";
  auto status = board_->status();
  const std::int32_t optimizer = optimizer_.value_or(status->lead.optimizer());
  // A change of state is told at once, the rest of the status once a second.
  const bool has_turned = shown_ == nullptr || shown_->state != status->state ||
                          shown_->incidents_total != status->incidents_total;
  if (status != shown_ && (has_turned || now - status_at_ >= kStatusEvery)) {
    append_event(events, "status", status_event(*status, optimizer));
    shown_ = std::move(status);
    status_at_ = now;
  }
  const StepsText steps = steps_text(*board_, optimizer, since_, kMostStepsInEvent);
  if (!steps.text.empty()) {
    events.append("id: ").append(std::to_string(started_of(*board_))).append("-");
    events.append(std::to_string(steps.next)).append("\n");
    append_event(events, "steps", steps.text);
  }
  since_ = steps.next;
  if (events.empty() && now - said_at_ >= kSilence) events = ": still here\n\n";
  if (!events.empty()) said_at_ = now;
  has_begun_ = true;
  return events;
}

HttpResponse event_stream(std::shared_ptr<const StatusBoard> board, const HttpRequest& request) {
  try {
    const Query asked(request.query, {"since", "optimizer"});
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    auto since = static_cast<std::uint64_t>(asked.number("since", 0, 0, kMost));
    if (const auto cursor = cursor_of(request.last_event_id, started_of(*board))) since = *cursor;
    const auto stream = std::make_shared<EventStream>(std::move(board), optimizer_in(asked), since);
    return {.content_type = "text/event-stream",
            .stream = [stream] { return stream->next(EventStream::Clock::now()); }};
  } catch (const BadQuery& error) {
    return {.status = 400, .body = std::string(error.what()) + '\n'};
  }
}

}  // namespace gradvane::exporters
