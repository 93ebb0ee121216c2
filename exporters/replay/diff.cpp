#include "exporters/replay/diff.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <unordered_map>

#include "record/numbers.hpp"

namespace gradvane::exporters::recording {
namespace {

using StepKey = std::pair<std::int64_t, std::int32_t>;  // run step, optimizer
using Steps = std::map<StepKey, const RecordedStep*>;

Steps steps_of(const Recording& recording) {
  Steps steps;
  for (const RecordedStep& step : recording.steps)
    if (step.record.is_step()) steps[{step.record.run_step, step.record.optimizer}] = &step;
  return steps;
}

// ---- settings and models ------------------------------------------------------------------------------

std::map<std::string, std::string> settings_of(const Recording& recording) {
  std::map<std::string, std::string> all;
  if (!recording.run) return all;
  const record::RunInfo& run = *recording.run;
  for (const record::Setting& setting : run.settings) all[setting.key] = setting.value;
  all["(gradvane)"] = run.version;
  all["(torch)"] = run.torch_version;
  all["(world size)"] = std::to_string(run.world_size);
  return all;
}

void diff_settings(Diff& diff, const Recording& a, const Recording& b) {
  const auto of_a = settings_of(a);
  const auto of_b = settings_of(b);
  const auto value_in = [](const auto& all, const std::string& key) {
    const auto found = all.find(key);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
  auto keys = of_a;
  keys.insert(of_b.begin(), of_b.end());
  for (const auto& [key, ignored] : keys) {
    SettingDifference one{key, value_in(of_a, key), value_in(of_b, key)};
    if (one.a != one.b) diff.settings.push_back(std::move(one));
  }
}

std::string kind_of(const record::ParamInfo& param) {
  std::string kind = param.dtype + "[";
  for (std::size_t i = 0; i < param.shape.size(); ++i)
    kind += (i > 0 ? ", " : "") + std::to_string(param.shape[i]);
  return kind + "]";
}

void diff_models(Diff& diff, const record::ModelInfo& a, const record::ModelInfo& b) {
  std::map<std::string, const record::ParamInfo*> of_b;
  for (const record::ParamInfo& param : b.params) of_b.emplace(param.name, &param);
  for (const record::ParamInfo& param : a.params) {
    const auto found = of_b.find(param.name);
    if (found == of_b.end()) {
      diff.params_only_in_a.push_back(param.name);
      continue;
    }
    const std::string kind_a = kind_of(param);
    const std::string kind_b = kind_of(*found->second);
    if (kind_a != kind_b) diff.params_changed.push_back(param.name + ": " + kind_a + ", " + kind_b);
    of_b.erase(found);
  }
  for (const record::ParamInfo& param : b.params)
    if (of_b.contains(param.name)) diff.params_only_in_b.push_back(param.name);
}

// ---- where they part --------------------------------------------------------------------------------

bool same_bits(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return std::bit_cast<std::uint64_t>(*a) == std::bit_cast<std::uint64_t>(*b);
}

bool within(const std::optional<double>& a, const std::optional<double>& b, double tolerance) {
  if (same_bits(a, b)) return true;
  if (!a || !b) return false;
  if (!std::isfinite(*a) || !std::isfinite(*b)) return std::isnan(*a) && std::isnan(*b);
  return std::abs(*a - *b) <= tolerance * std::max(std::abs(*a), std::abs(*b));
}

using record::Site;
using record::StepRecord;

constexpr std::string_view bad_words(Site site) {
  return site == Site::grad ? "gradient elements not finite" : "weight elements not finite";
}

/// How many elements of a site were not finite; absent if it was not read.
std::optional<double> bad_of(const StepRecord& record, Site site) {
  if (!record.site_measured[index_of(site)].value_or(false)) return std::nullopt;
  return static_cast<double>(record::nonfinite_at(record, site));
}

/// A number over the finite elements of a site is that of a part if others are not finite, and no measure of the
/// whole.
std::optional<double> whole(const record::StepNumber& number, const StepRecord& record) {
  const bool is_part = number.site && record.has_nonfinite(*number.site);
  return is_part ? std::nullopt : value_of(number, record);
}

struct Compared {
  std::string_view what;
  std::function<std::optional<double>(const StepRecord&)> value;
  bool is_seldom = false;  ///< compared in steps in which both have it
};

/// Those of the number table; before the numbers of a site, how much of it was not finite.
std::vector<Compared> compared_numbers() {
  std::vector<Compared> all;
  for (const record::StepNumber& number : record::kStepNumbers) {
    if (!number.is_compared) continue;
    if (const auto site = number.site) {
      const std::string_view bad = bad_words(*site);
      if (std::ranges::find(all, bad, &Compared::what) == all.end())
        all.push_back(
            {bad, [site](const StepRecord& r) { return bad_of(r, *site); }, number.is_seldom});
    }
    all.push_back({number.words, [&number](const StepRecord& r) { return whole(number, r); },
                   number.is_seldom});
  }
  return all;
}

/// The first parameter group whose rate differs. A schedule that parts explains what parts after it, and is no
/// number of the training itself.
std::optional<Difference> different_rate(const StepRecord& a, const StepRecord& b) {
  const auto rate = [](const StepRecord& record, std::int32_t group) {
    const bool is_there = group < std::min(record.lr_count, record::kMaxLearningRates);
    return is_there ? std::optional(record.lr[static_cast<std::size_t>(group)]) : std::nullopt;
  };
  const std::int32_t groups = std::max(a.lr_count, b.lr_count);
  for (std::int32_t g = 0; g < std::min(groups, record::kMaxLearningRates); ++g) {
    if (same_bits(rate(a, g), rate(b, g))) continue;
    const std::string which = groups == 1 ? "" : " of parameter group " + std::to_string(g);
    return Difference{a.run_step, "learning rate" + which, rate(a, g), rate(b, g)};
  }
  return std::nullopt;
}

void diff_steps(Diff& diff, const Steps& a, const Steps& b) {
  const std::vector<Compared> numbers = compared_numbers();
  for (const auto& [key, step] : a) {
    const auto other = b.find(key);
    if (other == b.end()) continue;
    if (diff.common_steps++ == 0) diff.first_common = key.first;
    diff.last_common = key.first;
    for (const Compared& number : numbers) {
      const auto of_a = number.value(step->record);
      const auto of_b = number.value(other->second->record);
      if (number.is_seldom && (!of_a || !of_b)) continue;
      const Difference one{key.first, std::string(number.what), of_a, of_b};
      if (!diff.first_bits && !same_bits(of_a, of_b)) diff.first_bits = one;
      if (!diff.first_beyond && !within(of_a, of_b, diff.tolerance)) diff.first_beyond = one;
    }
    if (!diff.first_rate) diff.first_rate = different_rate(step->record, other->second->record);
  }
}

// ---- one moment -------------------------------------------------------------------------------------

void put_ratio(std::vector<RatioDifference>& to, const std::string& name, std::string_view what,
               const std::optional<double>& a, const std::optional<double>& b) {
  constexpr double kNext = 1e-45;  // to zero, that a float knows
  if (!a || !b || !std::isfinite(*a) || !std::isfinite(*b) || *a == *b) return;
  const double ratio = std::log(std::max(*b, kNext)) - std::log(std::max(*a, kNext));
  to.push_back({name, std::string(what), *a, *b, ratio});
}

/// What is not finite of a site; absent if it was not read.
std::optional<std::int64_t> bad_of(const record::ParamStats& stats, Site site) {
  const auto& tensor = site == Site::grad ? stats.grad : stats.weight;
  return tensor ? std::optional(record::sum_of(tensor->nonfinite)) : std::nullopt;
}
std::optional<std::int64_t> bad_of(const record::GroupStats& stats, Site site) {
  return record::sum_of(stats.nonfinite[index_of(site)]);
}

std::optional<double> value_of(const record::TensorNumber& number,
                               const record::GroupStats& stats) {
  return stats.*number.group;
}

/// Norms are compared only if both are finite as a whole: else they are norms of different things, and what is not
/// finite is the difference. An update ratio stands by itself.
template <typename Stats>
void put_stats(std::vector<RatioDifference>& to, const std::string& name, const Stats& a,
               const Stats& b) {
  for (const Site site : {Site::grad, Site::weight}) {
    const auto in_a = bad_of(a, site);
    const auto in_b = bad_of(b, site);
    if (in_a && in_b)
      put_ratio(to, name, bad_words(site), static_cast<double>(*in_a), static_cast<double>(*in_b));
    const bool are_whole = in_a == 0 && in_b == 0;
    for (const record::TensorNumber& number : record::kTensorNumbers) {
      if (!number.is_compared || number.site != site) continue;
      if (!are_whole && number.join != record::Join::update) continue;
      put_ratio(to, name, number.words, value_of(number, a), value_of(number, b));
    }
  }
}

void farthest(std::vector<RatioDifference>& all, std::size_t most) {
  std::ranges::stable_sort(all, std::ranges::greater{},
                           [](const RatioDifference& one) { return std::abs(one.log_ratio); });
  if (all.size() > most) all.resize(most);
}

/// Index by name, of groups or parameters.
template <typename Names, typename Name>
std::unordered_map<std::string, std::size_t> places_of(const Names& names, std::size_t count,
                                                       Name name) {
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < std::min(names.size(), count); ++i) places.emplace(name(names[i]), i);
  return places;
}

void diff_details(Diff& diff, const DiffSide& a, const RecordedStep& step_a, const DiffSide& b,
                  const RecordedStep& step_b, std::size_t most) {
  const record::StepDetail of_a = a.recording->detail(step_a);
  const record::StepDetail of_b = b.recording->detail(step_b);
  const auto group_name = [](const std::string& name) { return name; };
  const auto groups = places_of(step_b.model->groups, of_b.groups.size(), group_name);
  for (std::size_t i = 0; i < std::min(step_a.model->groups.size(), of_a.groups.size()); ++i) {
    const std::string& name = step_a.model->groups[i];
    const auto other = groups.find(name);
    if (other == groups.end()) continue;
    const record::GroupStats& x = of_a.groups[i];
    const record::GroupStats& y = of_b.groups[other->second];
    put_stats(diff.groups, name, x, y);
  }
  const auto param_name = [](const record::ParamInfo& param) { return param.name; };
  const auto params = places_of(step_b.model->params, of_b.params.size(), param_name);
  for (std::size_t i = 0; i < std::min(step_a.model->params.size(), of_a.params.size()); ++i) {
    const std::string& name = step_a.model->params[i].name;
    const auto other = params.find(name);
    if (other != params.end())
      put_stats(diff.params, name, of_a.params[i], of_b.params[other->second]);
  }
  farthest(diff.groups, most);
  farthest(diff.params, most);
}

/// Of several optimizers, the first.
const RecordedStep* step_at(const Steps& steps, std::int64_t run_step) {
  const auto found = steps.lower_bound({run_step, 0});
  return found != steps.end() && found->first.first == run_step ? found->second : nullptr;
}

std::string not_there(const DiffSide& side, std::int64_t run_step, const Steps& steps) {
  std::string words = "step " + std::to_string(run_step) + " is not in " + side.name;
  if (steps.empty()) return words + ", which has no steps";
  return words + ", which has steps " + std::to_string(steps.begin()->first.first) + " to " +
         std::to_string(steps.rbegin()->first.first);
}

}  // namespace

Diff diff_of(const DiffSide& a, const DiffSide& b, const DiffOptions& options) {
  Diff diff;
  diff.a = a.name;
  diff.b = b.name;
  diff.tolerance = options.tolerance;
  const Steps of_a = steps_of(*a.recording);
  const Steps of_b = steps_of(*b.recording);
  diff_settings(diff, *a.recording, *b.recording);
  diff_steps(diff, of_a, of_b);

  // Where nobody asked for a moment, the one in which they part says most.
  std::int64_t usual = diff.last_common;
  if (diff.first_beyond) usual = diff.first_beyond->run_step;
  const std::int64_t at_a = a.run_step.value_or(b.run_step.value_or(usual));
  const std::int64_t at_b = b.run_step.value_or(a.run_step.value_or(usual));
  const RecordedStep* step_a = step_at(of_a, at_a);
  const RecordedStep* step_b = step_at(of_b, at_b);
  if (step_a != nullptr && step_b != nullptr) {
    diff.moment_a = at_a;
    diff.moment_b = at_b;
    for (const RecordedStep* step : {step_a, step_b})
      diff.has_nonfinite |=
          step->record.has_nonfinite(Site::grad) || step->record.has_nonfinite(Site::weight);
    diff_models(diff, *step_a->model, *step_b->model);
    diff_details(diff, a, *step_a, b, *step_b, options.most);
  } else if (!a.run_step && !b.run_step) {
    diff.problem = "they have no step in common; name two, as FILE@STEP";
  } else {
    diff.problem = step_a == nullptr ? not_there(a, at_a, of_a) : not_there(b, at_b, of_b);
  }
  return diff;
}

}  // namespace gradvane::exporters::recording
