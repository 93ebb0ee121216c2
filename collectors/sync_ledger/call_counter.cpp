#include "collectors/sync_ledger/call_counter.hpp"

#include <cstring>

namespace gradvane::collectors {
namespace {

using record::SyncDrop;
using record::SyncKind;
using record::SyncOrigin;

constexpr std::uint8_t kNowhere = 255;

template <typename T>
T param_at(const cupti::CallbackData& data, std::uint8_t offset) noexcept {
  T value{};
  std::memcpy(static_cast<void*>(&value), static_cast<const char*>(data.params) + offset,
              sizeof value);
  return value;
}

const void* stream_of(const CudaCall& call, const cupti::CallbackData& data) noexcept {
  if (call.stream_at == kNowhere || data.params == nullptr) return nullptr;
  return param_at<const void*>(data, call.stream_at);
}

CopyDirection direction_of(const CudaCall& call, const cupti::CallbackData& data) noexcept {
  if (call.direction_at == kNowhere || data.params == nullptr) return call.direction;
  const auto kind = param_at<std::int32_t>(data, call.direction_at);
  return kind >= 0 && kind < 4 ? static_cast<CopyDirection>(kind) : CopyDirection::unknown;
}

/// The errors of a call that a stream's capture does not allow.
bool is_rejected_in_capture(const cupti::CallbackData& data) noexcept {
  if (data.return_value == nullptr) return false;
  const int result = *static_cast<const int*>(data.return_value);
  return result >= 900 && result <= 908;
}

/// Within another call. A copy there is that call's own business: one on the device does not wait.
bool waits(CallClass what) noexcept {
  return what == CallClass::device || what == CallClass::stream || what == CallClass::event;
}

}  // namespace

void CallCounter::enter(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
                        const Circumstances& now) noexcept {
  ThreadTable::Call& active = table.call;
  if (active.what != nullptr) {
    // No call contains itself, and none lasts beyond the subscription that saw it begin.
    constexpr std::uint32_t kMostInside = 100;  // more, and its end has been lost
    if (active.generation == now.generation && active.what != &call &&
        ++active.inside < kMostInside) {
      active.waited_inside |= waits(call.what);
      return;
    }
    table.drop(SyncDrop::unbalanced);
  }
  if (table.copy.is_there &&
      (call.what != CallClass::stream || stream_of(call, data) != table.copy.stream))
    table.settle_copy();
  active = {&call,     ++table.calls_seen, now.generation, now.epoch, now.now,
            now.phase, now.origin,         now.part,       false,     0};
  if (data.correlation_data != nullptr) *data.correlation_data = active.token;
}

void CallCounter::exit(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
                       const Circumstances& now) noexcept {
  ThreadTable::Call& active = table.call;
  if (active.what == nullptr) return table.drop(SyncDrop::unbalanced);
  if (active.what != &call) return;  // within the one that counts
  const bool is_ours = data.correlation_data == nullptr || *data.correlation_data == active.token;
  if (is_ours && active.generation == now.generation)
    finish(table, call, data, now);
  else
    table.drop(SyncDrop::unbalanced);
  active.what = nullptr;
}

void CallCounter::finish(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
                         const Circumstances& now) noexcept {
  const ThreadTable::Call& active = table.call;
  const std::int64_t took = now.now - active.began;
  const bool has_waited =
      active.waited_inside || took >= threshold_.load(std::memory_order_relaxed);
  const auto count = [&](SyncKind kind) {
    table.count(key_of(table, call, kind, now.scope), active.epoch, took);
  };
  if (is_rejected_in_capture(data)) return count(SyncKind::rejected_in_capture);
  if (call.what == CallClass::poll) return table.poll(active.origin, took);
  switch (call.what) {
    case CallClass::device:
      return count(SyncKind::device);
    case CallClass::event:
      return count(SyncKind::event);
    case CallClass::stream:
      return finish_stream(table, call, data, took, now.scope);
    case CallClass::copy:
      if (direction_of(call, data) != CopyDirection::device_to_device || has_waited)
        count(SyncKind::memcpy);
      return;
    case CallClass::copy_async:
      return finish_copy(table, call, data, took, has_waited, now);
    case CallClass::allocation:
      if (has_waited) count(SyncKind::alloc_free);
      return;
    case CallClass::module:
      if (has_waited) count(SyncKind::module_load);
      return;
    case CallClass::poll:
    case CallClass::none:
      return;
  }
}

/// Kept until the thread's next call: a wait on the same stream from the same place belongs to it.
void CallCounter::finish_copy(ThreadTable& table, const CudaCall& call,
                              const cupti::CallbackData& data, std::int64_t took, bool has_waited,
                              const Circumstances& now) noexcept {
  const CopyDirection direction = direction_of(call, data);
  if (direction == CopyDirection::device_to_device) return;
  const SyncKey key = key_of(table, call, SyncKind::async_copy_blocked, now.scope);
  table.keep_copy({true, has_waited, direction, key.phase, key.origin, key.part, key.place,
                   stream_of(call, data), table.call.epoch, took},
                  now.now);
}

void CallCounter::finish_stream(ThreadTable& table, const CudaCall& call,
                                const cupti::CallbackData& data, std::int64_t took,
                                const char* scope) noexcept {
  SyncKey key = key_of(table, call, SyncKind::stream, scope);
  const ThreadTable::Copy& copy = table.copy;
  std::uint64_t epoch = table.call.epoch;
  if (copy.is_there && copy.stream == stream_of(call, data) && copy.place == key.place &&
      copy.origin == key.origin) {
    const bool is_read =
        copy.direction == CopyDirection::device_to_host || copy.direction == CopyDirection::unknown;
    key.kind = is_read ? SyncKind::d2h_read : SyncKind::memcpy;
    key.phase = copy.phase;
    took += copy.nanoseconds;
    epoch = copy.epoch;
    table.forget_copy();
  } else {
    table.settle_copy();
  }
  table.count(key, epoch, took);
}

SyncKey CallCounter::key_of(ThreadTable& table, const CudaCall& call, SyncKind kind,
                            const char* scope) noexcept {
  const ThreadTable::Call& active = table.call;
  if (active.origin == SyncOrigin::gradvane)
    return {kGradvanePlace, kind, SyncOrigin::gradvane, active.phase, active.part};
  const PlaceFinder::Found found = finder_.find(table, call, scope);
  const SyncOrigin origin = found.in_profiler ? SyncOrigin::profiler : active.origin;
  return {found.place, kind, origin, active.phase, active.part};
}

}  // namespace gradvane::collectors
