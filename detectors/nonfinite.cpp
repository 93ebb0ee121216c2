#include "detectors/nonfinite.hpp"

#include <algorithm>
#include <string>

#include "detectors/nonfinite_words.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::Site;

// The order in which they come about within a step.
constexpr std::array kOrder{Site::loss, Site::grad, Site::weight};

constexpr IncidentClass class_of(Site site) {
  switch (site) {
    case Site::loss:
      return IncidentClass::nonfinite_loss;
    case Site::grad:
      return IncidentClass::nonfinite_grad;
    case Site::weight:
      break;
  }
  return IncidentClass::nonfinite_weight;
}

bool was_read(Site site, const record::StepRecord& step) {
  return step.site_measured[index_of(site)].value_or(false);
}

/// What a gradient scaler got over is neither bad nor clean.
bool is_judged(Site site, const record::StepRecord& step) {
  return was_read(site, step) && !(site == Site::grad && step.is_handled_overflow());
}

/// Where in its step the first bad site came about, as far as the others tell.
std::optional<record::BeganIn> began_in(const record::Appearance& first,
                                        const record::StepRecord& step, bool is_alone) {
  const Site site = first.site;
  if (site == Site::loss) return record::BeganIn::forward;
  if (!step.was_finite(Site::loss)) return std::nullopt;
  if (site == Site::grad) {
    if (step.first_bad_rank)
      return step.first_bad_loss ? record::BeganIn::forward : record::BeganIn::backward;
    return is_alone ? std::optional(record::BeganIn::backward) : std::nullopt;
  }
  if (!step.was_finite(Site::grad) || !is_fresh(first)) return std::nullopt;
  return record::BeganIn::update;
}

}  // namespace

void NonfiniteDetector::observe(const record::StepRecord& step, const record::ModelInfo& model) {
  const bool was_open = open_.has_value();
  bool any_bad = false;
  bool is_news = false;
  for (const Site site : kOrder) {
    if (!book_.is_judged(class_of(site))) {  // if that is new, the site keeps no incident open
      clean_reads_[index_of(site)] = std::max(kClearAfter, kWeightsClearAfter);
      continue;
    }
    const bool judged = is_judged(site, step);
    const bool bad = judged && step.has_nonfinite(site);
    const std::int64_t lost = take_lost(site, step, bad);
    if (bad || lost > 0) {
      is_news |= appear(site, step, model, bad ? 0 : lost);
    } else if (judged) {
      ++clean_reads_[index_of(site)];
      last_finite_[index_of(site)][step.optimizer] = step.run_step;
    }
    any_bad |= bad || lost > 0;
  }
  if (traced_ && step.run_step >= traced_->run_step) {
    if (open_ && !open_->module && step.run_step == traced_->run_step) name_module(*traced_);
    traced_.reset();
  }
  if (!open_) return;
  if (any_bad && was_open) {
    open_->last_step = step.run_step;
    ++open_->steps;
  }
  if (is_news) report_(*open_);
  close_if_clean(step);
}

/// Bad steps that the totals know of and no record told.
std::int64_t NonfiniteDetector::take_lost(Site site, const record::StepRecord& step, bool bad) {
  std::int64_t& seen = steps_seen_[index_of(site)];
  const std::int64_t lost = step.nonfinite_steps_total[index_of(site)] - seen - (bad ? 1 : 0);
  seen = std::max(seen, step.nonfinite_steps_total[index_of(site)]);
  // The totals count reads, and a step may have several: without a lost record there is no lost step.
  return step.dropped_before > 0 ? std::max<std::int64_t>(lost, 0) : 0;
}

/// True where that is new: the incident opens, or the site joins it.
bool NonfiniteDetector::appear(Site site, const record::StepRecord& step,
                               const record::ModelInfo& model, std::int64_t lost) {
  clean_reads_[index_of(site)] = 0;
  if (open_ && is_part_[index_of(site)]) return false;
  record::Appearance appearance;
  appearance.site = site;
  appearance.run_step = step.run_step;
  if (lost == 0) {
    const auto last = last_finite_[index_of(site)].find(step.optimizer);
    if (last != last_finite_[index_of(site)].end()) appearance.last_finite = last->second;
    appearance.counts = step.nonfinite[index_of(site)];
    appearance.first = step.first_by_site[index_of(site)];
    if (appearance.first) appearance.param = model.param_name(appearance.first->param);
  }
  if (open_) {
    open_->evidence += describe_joined(appearance);
    open_->order.push_back(std::move(appearance));
  } else {
    open(site, step, appearance, lost);
  }
  is_part_[index_of(site)] = true;
  return true;
}

void NonfiniteDetector::open(Site site, const record::StepRecord& step,
                             const record::Appearance& first, std::int64_t lost) {
  record::Incident fresh;
  fresh.kind = class_of(site);
  fresh.rank = rank_;
  fresh.first_step = fresh.last_step = step.run_step;
  fresh.steps = std::max<std::int64_t>(lost, 1);
  fresh.opened_at = step.time;
  fresh.first = first.first;
  fresh.param = first.param;
  if (lost == 0) fresh.began_in = began_in(first, step, is_alone_);
  if (lost == 0 && step.bad_micro_step > 0 && site == Site::loss)
    fresh.micro_step = step.bad_micro_step;
  fresh.order.push_back(first);
  fresh.evidence = describe_first(fresh, first, lost, step);
  fresh.id = book_.next_id();
  open_ = std::move(fresh);
  is_part_ = {};
}

void NonfiniteDetector::close_if_clean(const record::StepRecord& step) {
  for (const Site site : kOrder) {
    const int needed = site == Site::weight ? kWeightsClearAfter : kClearAfter;
    if (is_part_[index_of(site)] && clean_reads_[index_of(site)] < needed) return;
  }
  close(step.time);
}

void NonfiniteDetector::close(double time) {
  record::Incident closed = *std::exchange(open_, std::nullopt);
  closed.closed_at = time;
  report_(closed);
}

void NonfiniteDetector::went_back(const Moment& now) {
  if (open_) close(now.time);
}

void NonfiniteDetector::trace_found(const record::TracedModule& module) {
  if (!open_) {
    traced_ = module;
  } else if (!open_->module) {
    name_module(module);
    report_(*open_);
  }
}

void NonfiniteDetector::name_module(const record::TracedModule& module) {
  open_->module = module;
  open_->evidence += describe_module(module);
}

}  // namespace gradvane::detectors
