#include "agent/governor/skip_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace gradvane::agent {
namespace {

constexpr std::size_t kToldApart = 1024;  ///< skips of a row; of older ones only the count is kept

}  // namespace

void SkipRows::Row::add(const Skip& skip) {
  if (skip.number <= over) return;
  skips.insert(std::ranges::upper_bound(skips, skip.number, {}, &Skip::number), skip);
  if (skips.size() <= kToldApart) return;
  skips.erase(skips.begin());
  ++older;
}

void SkipRows::Row::end(std::int64_t number) noexcept {
  if (number <= over) return;
  over = number;
  older = 0;
  has_late = false;
  skips.erase(skips.begin(), std::ranges::upper_bound(skips, number, {}, &Skip::number));
}

std::int64_t SkipRows::leave(int optimizer, bool in_graph) {
  const std::lock_guard lock(mutex_);
  return in_graph || row_of(optimizer).count() == 0 ? ++numbers_ : 0;
}

void SkipRows::note_outcome(int optimizer, Skip skip) {
  const std::lock_guard lock(mutex_);
  Row& row = row_of(optimizer);
  if (skip.number == 0) skip.number = ++numbers_;
  if (skip.fault == Fault::none)
    row.end(skip.number);
  else
    row.add(skip);
  row.has_late = row.count() > 0;
  show(row);
}

std::optional<SkipRows::Skip> SkipRows::taken(int optimizer, std::int64_t limit) {
  const std::lock_guard lock(mutex_);
  Row& row = row_of(optimizer);
  std::optional<Skip> last;
  if (row.has_late && row.count() >= limit) last = row.skips.back();
  row.end(++numbers_);
  show(row);
  return last;
}

std::optional<SkipRows::Skip> SkipRows::skipped(int optimizer, std::int64_t run_step, Fault fault,
                                                std::int64_t limit) {
  const std::lock_guard lock(mutex_);
  Row& row = row_of(optimizer);
  const Skip skip{.number = ++numbers_, .run_step = run_step, .fault = fault};
  row.add(skip);
  row.has_late = false;
  show(row);
  if (row.count() < limit) return std::nullopt;
  row.end(skip.number);
  return skip;
}

SkipRows::Row& SkipRows::row_of(int optimizer) {
  const auto index = static_cast<std::size_t>(std::max(optimizer, 0));
  if (index >= rows_.size()) rows_.resize(index + 1);
  return rows_[index];
}

void SkipRows::show(const Row& row) noexcept {
  const auto count = std::min<std::int64_t>(row.count(), std::numeric_limits<int>::max());
  in_a_row_.store(static_cast<int>(count), std::memory_order_relaxed);
}

}  // namespace gradvane::agent
