#include "agent/snapshots/snapshots.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>

#include "agent/snapshots/host_memory.hpp"
#include "record/clocks.hpp"
#include "record/rollback.hpp"

namespace gradvane::agent {

using record::SnapshotResult;

void Snapshots::after_step(int optimizer, std::int64_t run_step, bool goes_back) noexcept try {
  is_asked_ = is_asked_ || goes_back;
  if (!is_asked_ && !governor_.pace().is_on()) return;
  if (!leads(optimizer)) return;
  if (std::exchange(is_asked_, false)) return answer(run_step);
  const double now = record::monotonic_time();
  if (!clock_.is_due(run_step, now)) return;
  if (take(run_step)) clock_.taken(run_step, now);
  clock_.tried(now, record::monotonic_time() - now);
} catch (...) {  // no memory for its books: the next step may have some
}

bool Snapshots::leads(int optimizer) {
  if (leader_ >= 0) return optimizer == leader_;
  stepped_.insert(optimizer);
  if (stepped_.size() < state_.optimizers()) return false;
  leader_ = optimizer;
  return true;
}

Snapshots::Generation* Snapshots::newest_good(std::optional<std::int64_t> run_step) noexcept {
  Generation* newest = nullptr;
  for (Generation& one : generations_)
    if (one.is_good && (!run_step || one.run_step == *run_step) &&
        (newest == nullptr || one.number > newest->number))
      newest = &one;
  return newest;
}

bool Snapshots::take(std::int64_t run_step) noexcept try {
  if (!governor_.may_snapshot())
    return refuse(SnapshotResult::incident, "an incident has left the state in doubt");
  if (std::string why = state_.unsupported(); !why.empty())
    return refuse(SnapshotResult::unsupported, std::move(why));
  // The only good one is never overwritten.
  const Generation* newest = newest_good();
  Generation& place = &generations_[0] == newest ? generations_[1] : generations_[0];
  if (std::ranges::all_of(generations_, [](const Generation& one) { return one.number == 0; }))
    if (std::string why = memory_refusal(2 * state_.bytes()); !why.empty())
      return refuse(SnapshotResult::memory, std::move(why));
  if (!std::exchange(has_masks_, true)) masks_ = state_.masks();
  place.is_good = false;
  place.number = ++begun_;
  place.run_step = run_step;
  place.taken_at = record::monotonic_time();
  place.restores = 0;
  state_.copy(place.copy);
  if (const std::string bad = place.copy.nonfinite(masks_); !bad.empty()) {
    note_newest();
    return refuse(SnapshotResult::nonfinite, bad + " is not finite");
  }
  place.checksum = place.copy.checksum();
  place.is_good = true;
  governor_.count_snapshot(SnapshotResult::committed);
  note_newest();
  return true;
} catch (const std::exception& error) {
  return refuse(SnapshotResult::failed, error.what());
} catch (...) {
  return refuse(SnapshotResult::failed, "an exception that is no std::exception");
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
  Generation& from = intact(to_step);
  if (const std::string difference = state_.difference(from.copy); !difference.empty())
    throw std::runtime_error(
        "the training is no longer the one that the snapshot is of, and nothing was restored: " +
        difference);
  const double now = record::monotonic_time();
  const double factor = std::pow(options.lr_factor, ++from.restores);
  for (const std::string& error : state_.restore(from.copy, options.optimizer, factor))
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
