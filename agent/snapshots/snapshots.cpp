#include "agent/snapshots/snapshots.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>

#include "record/clocks.hpp"
#include "record/rollback.hpp"

namespace gradvane::agent {

using record::SnapshotResult;

Snapshots::Snapshots(Governor& governor, std::function<bool()> is_capturing,
                     std::function<collectors::SyncLedger*()> ledger,
                     std::unique_ptr<Streams> streams)
    : governor_(governor),
      is_capturing_(std::move(is_capturing)),
      copies_(std::move(streams)),
      clock_(governor.pace()) {
  copies_.set_ledger(std::move(ledger));
  copies_.synchronize_devices(governor.rollback_device_sync());
}

Snapshots::~Snapshots() {
  try {
    if (pending_) copies_.land(pending_->flight);
    for (Generation& one : generations_) copies_.land(one.read_by);
  } catch (...) {  // the device is lost, and its copies with it
  }
}

void Snapshots::after_step(int optimizer, std::int64_t run_step, bool goes_back,
                           bool overlaps) noexcept try {
  if (goes_back && !std::exchange(is_asked_, true)) steps_since_asked_ = 0;
  if (!is_asked_ && !governor_.pace().is_on()) return;
  const bool leads = leader_.stepped(optimizer, state_.optimizers());
  if (is_asked_ && (leads || ++steps_since_asked_ > leader_.longest_round())) {
    is_asked_ = false;
    return answer(run_step);
  }
  if (!leads) return;
  double now = record::monotonic_time();
  if (pending_) {
    settle(false);
    const double began = std::exchange(now, record::monotonic_time());
    clock_.also_took(now - began);
  }
  if (!clock_.is_due(run_step, now)) return;
  if (take(run_step, overlaps)) clock_.taken(run_step, now);
  clock_.tried(run_step, now, record::monotonic_time() - now);
} catch (...) {  // no memory for its books: the next step may have some
}

Snapshots::Generation* Snapshots::newest_good(std::optional<std::int64_t> run_step) noexcept {
  Generation* newest = nullptr;
  if (run_step == 0) return newest;  // ranks have none in common
  for (Generation& one : generations_)
    if (one.is_good && (!run_step || one.run_step == *run_step) &&
        (newest == nullptr || one.number > newest->number))
      newest = &one;
  return newest;
}

bool Snapshots::take(std::int64_t run_step, bool overlaps) noexcept try {
  settle(false);
  if (pending_) return false;
  if (is_capturing_()) return refuse(SnapshotResult::capturing, "a CUDA graph is captured");
  if (!governor_.may_snapshot())
    return refuse(SnapshotResult::incident, "an incident has left the state in doubt");
  if (std::string why = state_.unsupported(); !why.empty())
    return refuse(SnapshotResult::unsupported, std::move(why));
  // The only good one is never overwritten.
  const Generation* newest = newest_good();
  Generation& place = &generations_[0] == newest ? generations_[1] : generations_[0];
  const std::int64_t needed = state_.bytes();
  std::int64_t lacking = 0;
  for (const Generation& one : generations_)
    lacking += std::max<std::int64_t>(needed - one.copy.bytes(), 0);
  if (lacking > 0)
    if (std::string why = memory_refusal_(lacking); !why.empty())
      return refuse(SnapshotResult::memory, std::move(why));
  if (!std::exchange(has_masks_, true)) {
    const collectors::OwnCalls own = copies_.own();
    masks_ = state_.masks();
  }
  place.is_good = false;
  note_newest();
  place.number = ++begun_;
  place.run_step = run_step;
  place.taken_at = record::monotonic_time();
  place.restores = 0;
  copies_.land(place.read_by);
  place.read_by = {};
  Flight flight = state_.copy(place.copy, copies_, overlaps && overlaps_);
  if (flight.events.empty()) return commit(place, examined(place.copy, masks_));
  pending_.emplace(Pending{&place, std::move(flight)});
  return true;
} catch (const std::exception& error) {
  return refuse(SnapshotResult::failed, error.what());
} catch (...) {
  return refuse(SnapshotResult::failed, "an exception that is no std::exception");
}

bool Snapshots::take_now(std::int64_t run_step) noexcept {
  settle(true);
  const std::int64_t before = committed_;
  (void)take(run_step, false);
  settle(true);
  return committed_ > before;
}

bool Snapshots::commit(Generation& place, const Examined& found) noexcept {
  if (!governor_.may_snapshot())
    return refuse(SnapshotResult::incident, "an incident has left the state in doubt");
  if (!found.nonfinite.empty())
    return refuse(SnapshotResult::nonfinite, found.nonfinite + " is not finite");
  place.checksum = found.checksum;
  place.is_good = true;
  ++committed_;
  governor_.count_snapshot(SnapshotResult::committed);
  note_newest();
  return true;
}

void Snapshots::before_update() noexcept try {
  if (!pending_) return;
  const double began = record::monotonic_time();
  if (is_capturing_()) {
    // Its update will be replayed without a hook.
    drop(SnapshotResult::capturing, "a CUDA graph is captured");
  } else if (!copies_.gate(pending_->flight)) {
    overlaps_ = false;  // this loop writes parameters between steps
    drop(SnapshotResult::written,
         "parameters were written between two steps; from now on streams wait for the copies");
  }
  settle(false);
  clock_.also_took(record::monotonic_time() - began);
} catch (const std::exception& error) {
  drop(SnapshotResult::failed, error.what());
} catch (...) {
  drop(SnapshotResult::failed, "an exception that is no std::exception");
}

void Snapshots::settle(bool wait) noexcept try {
  if (!pending_ || is_capturing_()) return;
  if (wait && !copies_.gate(pending_->flight))
    return drop(SnapshotResult::written, "parameters were written while they were copied");
  if (wait) copies_.land(pending_->flight);
  if (pending_->examination == nullptr) {
    if (!copies_.has_landed(pending_->flight)) return;
    pending_->examination = std::make_unique<Examination>(pending_->generation->copy, masks_);
  }
  if (!pending_->flight.is_gated || (!wait && !pending_->examination->is_over())) return;
  const Examined found = pending_->examination->result();
  Generation& place = *pending_->generation;
  pending_.reset();
  if (!commit(place, found)) clock_.lost();
} catch (const std::exception& error) {
  drop(SnapshotResult::failed, error.what());
} catch (...) {
  drop(SnapshotResult::failed, "an exception that is no std::exception");
}

void Snapshots::drop(SnapshotResult why, std::string_view reason) noexcept try {
  if (!pending_) return;
  pending_->generation->read_by = std::move(pending_->flight);
  pending_.reset();
  clock_.lost();
  (void)refuse(why, std::string(reason));
} catch (...) {  // no memory for the reason
}

bool Snapshots::refuse(SnapshotResult result, std::string why) noexcept try {
  governor_.count_snapshot(result);
  last_refusal_ = std::move(why);
  if (logged_.insert(result).second) governor_.log("a snapshot was not taken: " + last_refusal_);
  return false;
} catch (...) {  // it is counted
  return false;
}

void Snapshots::note_newest() noexcept {
  std::array<record::KeptSnapshot, ranks::kGenerations> good{};
  std::size_t count = 0;
  const Generation* newest = newest_good();
  const auto keep = [&](const Generation& one) {
    good[count++] = {.run_step = one.run_step,
                     .age_seconds = record::monotonic_time() - one.taken_at};
  };
  if (newest != nullptr) keep(*newest);
  for (const Generation& one : generations_)
    if (one.is_good && &one != newest) keep(one);
  governor_.set_snapshots(std::span(good).first(count));
}

/// Snapshots of that step and of later ones are of a training that had gone bad.
void Snapshots::forget_since(std::int64_t run_step) noexcept {
  if (pending_ && pending_->generation->run_step >= run_step)
    drop(SnapshotResult::incident, "a step before it was bad");
  for (Generation& one : generations_)
    if (one.run_step >= run_step) one.is_good = false;
  note_newest();
}

Snapshots::Generation& Snapshots::intact(std::optional<std::int64_t> run_step) {
  while (Generation* newest = newest_good(run_step)) {
    if (newest->copy.checksum() == newest->checksum) return *newest;
    newest->is_good = false;  // its bytes are no longer those that were copied
    note_newest();
  }
  throw std::runtime_error(std::string(run_step ? "the ranks have no good snapshot in common"
                                                : "there is no good snapshot to go back to") +
                           (last_refusal_.empty() ? std::string() : "; " + last_refusal_));
}

void Snapshots::answer(std::int64_t run_step) noexcept try {
  if (const auto bad_since = governor_.diverges_since()) forget_since(*bad_since);
  (void)restore(governor_.reason(), run_step, governor_.rollback_options(),
                governor_.agreed_snapshot(), true);
} catch (const std::exception& error) {
  governor_.stop_instead();
  governor_.log(std::string("no rollback: ") + error.what());
} catch (...) {
  governor_.stop_instead();
}

Rollback Snapshots::go_back(std::string reason, std::int64_t run_step,
                            const RollbackOptions& options) {
  if (!(options.lr_factor > 0) || !std::isfinite(options.lr_factor))
    throw std::invalid_argument("rollback: lr_factor must be above 0");
  is_asked_ = false;
  Rollback done = restore(std::move(reason), run_step, options, std::nullopt, false);
  state_.drop_gradients();
  return done;
}

Rollback Snapshots::restore(std::string reason, std::int64_t run_step,
                            const RollbackOptions& options, std::optional<std::int64_t> to_step,
                            bool is_by_policy) {
  if (is_capturing_()) throw std::runtime_error("a CUDA graph is captured; go back between steps");
  settle(true);
  Generation& from = intact(to_step);
  if (const std::string difference = state_.difference(from.copy); !difference.empty())
    throw std::runtime_error(
        "the training is no longer the one that the snapshot is of, and nothing was restored: " +
        difference);
  const double now = record::monotonic_time();
  const double factor = std::pow(options.lr_factor, ++from.restores);
  copies_.land(from.read_by);
  for (const std::string& error :
       state_.restore(from.copy, copies_, from.read_by, options.optimizer, factor))
    governor_.log("rollback: " + error);
  clock_.taken(run_step, now);  // the state is a snapshot's: none is due
  Rollback done{.reason = std::move(reason),
                .run_step = run_step,
                .to_step = from.run_step,
                .generation = from.number,
                .snapshot_age_seconds = now - from.taken_at,
                .lr_factor = factor,
                .by_policy = is_by_policy};
  governor_.note_rollback({.why = done.reason,
                           .run_step = run_step,
                           .to_step = from.run_step,
                           .generation = from.number,
                           .snapshot_age_seconds = done.snapshot_age_seconds,
                           .optimizer = std::string(name_of(options.optimizer)),
                           .lr_factor = factor},
                          is_by_policy);
  for (const auto& callback : callbacks_) {
    try {
      callback(done);
    } catch (const std::exception& error) {
      governor_.log(std::string("an on_rollback callback failed: ") + error.what());
    } catch (...) {
      governor_.log("an on_rollback callback failed");
    }
  }
  return done;
}

}  // namespace gradvane::agent
