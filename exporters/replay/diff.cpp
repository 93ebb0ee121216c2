#include "exporters/replay/diff.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <unordered_map>

#include "exporters/finite_part.hpp"

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

/// How many elements of a site were not finite, where it was read.
template <record::Site site>
std::optional<double> bad_of(const record::StepRecord& record) {
  if (!record.site_measured[static_cast<std::size_t>(site)].value_or(false)) return std::nullopt;
  return static_cast<double>(nonfinite_at(record, site));
}

/// A number over the finite elements of a site: of a part, where others are not, and no measure of the whole.
template <record::Site site, std::optional<double> record::StepRecord::* number>
std::optional<double> whole(const record::StepRecord& record) {
  return record.has_nonfinite(site) ? std::nullopt : record.*number;
}

constexpr const char* kBadGradient = "gradient elements not finite";
constexpr const char* kBadWeight = "weight elements not finite";

struct Number {
  const char* what;
  std::optional<double> (*value)(const record::StepRecord&);
  bool is_of_each_step = true;  ///< else it is compared in steps in which both have it
};
using record::Site;
using record::StepRecord;
constexpr Number kNumbers[] = {
    {"loss", [](const StepRecord& r) { return r.loss; }},
    {kBadGradient, bad_of<Site::grad>},
    {"gradient norm", whole<Site::grad, &StepRecord::grad_norm>},
    {"largest gradient", whole<Site::grad, &StepRecord::grad_abs_max>},
    {kBadWeight, bad_of<Site::weight>, false},
    {"weight norm", whole<Site::weight, &StepRecord::weight_norm>, false},
    {"loss scale", [](const StepRecord& r) { return r.loss_scale; }}};

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
  for (const auto& [key, step] : a) {
    const auto other = b.find(key);
    if (other == b.end()) continue;
    if (diff.common_steps++ == 0) diff.first_common = key.first;
    diff.last_common = key.first;
    for (const Number& number : kNumbers) {
      const auto of_a = number.value(step->record);
      const auto of_b = number.value(other->second->record);
      if (!number.is_of_each_step && (!of_a || !of_b)) continue;
      const Difference one{key.first, number.what, of_a, of_b};
      if (!diff.first_bits && !same_bits(of_a, of_b)) diff.first_bits = one;
      if (!diff.first_beyond && !within(of_a, of_b, diff.tolerance)) diff.first_beyond = one;
    }
    if (!diff.first_rate) diff.first_rate = different_rate(step->record, other->second->record);
  }
}

// ---- one moment -------------------------------------------------------------------------------------

void put(std::vector<RatioDifference>& to, const std::string& name, const char* what,
         const std::optional<double>& a, const std::optional<double>& b) {
  constexpr double kNext = 1e-45;  // to zero, that a float knows
  if (!a || !b || !std::isfinite(*a) || !std::isfinite(*b) || *a == *b) return;
  const double ratio = std::log(std::max(*b, kNext)) - std::log(std::max(*a, kNext));
  to.push_back({name, what, *a, *b, ratio});
}

std::optional<double> zeros_of(const record::TensorNumbers& numbers) {
  if (numbers.numel <= 0) return std::nullopt;
  return static_cast<double>(numbers.zero) / static_cast<double>(numbers.numel);
}

/// True where both are finite as a whole: only then are their norms norms of the same thing. What is not
/// finite is told.
bool are_whole(std::vector<RatioDifference>& to, const std::string& name, const char* what,
               const record::NonfiniteCounts& a, const record::NonfiniteCounts& b) {
  const std::int64_t in_a = sum_of(a);
  const std::int64_t in_b = sum_of(b);
  put(to, name, what, static_cast<double>(in_a), static_cast<double>(in_b));
  return in_a == 0 && in_b == 0;
}

void put_params(std::vector<RatioDifference>& to, const std::string& name,
                const record::ParamStats& a, const record::ParamStats& b) {
  if (a.grad && b.grad && are_whole(to, name, kBadGradient, a.grad->nonfinite, b.grad->nonfinite)) {
    put(to, name, "gradient norm", a.grad->norm, b.grad->norm);
    put(to, name, "largest gradient", a.grad->abs_max, b.grad->abs_max);
    put(to, name, "zeros", zeros_of(*a.grad), zeros_of(*b.grad));
  }
  if (a.weight && b.weight &&
      are_whole(to, name, kBadWeight, a.weight->nonfinite, b.weight->nonfinite))
    put(to, name, "weight norm", a.weight->norm, b.weight->norm);
  put(to, name, "update ratio", a.update_ratio, b.update_ratio);
}

void put_groups(std::vector<RatioDifference>& to, const std::string& name,
                const record::GroupStats& a, const record::GroupStats& b) {
  constexpr auto kGrad = static_cast<std::size_t>(Site::grad);
  constexpr auto kWeight = static_cast<std::size_t>(Site::weight);
  if (are_whole(to, name, kBadGradient, a.nonfinite[kGrad], b.nonfinite[kGrad])) {
    put(to, name, "gradient norm", a.grad_norm, b.grad_norm);
    put(to, name, "largest gradient", a.grad_abs_max, b.grad_abs_max);
    put(to, name, "zeros", a.grad_zero_ratio, b.grad_zero_ratio);
  }
  if (are_whole(to, name, kBadWeight, a.nonfinite[kWeight], b.nonfinite[kWeight]))
    put(to, name, "weight norm", a.weight_norm, b.weight_norm);
  put(to, name, "update ratio", a.update_ratio, b.update_ratio);
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
    put_groups(diff.groups, name, x, y);
  }
  const auto param_name = [](const record::ParamInfo& param) { return param.name; };
  const auto params = places_of(step_b.model->params, of_b.params.size(), param_name);
  for (std::size_t i = 0; i < std::min(step_a.model->params.size(), of_a.params.size()); ++i) {
    const std::string& name = step_a.model->params[i].name;
    const auto other = params.find(name);
    if (other != params.end())
      put_params(diff.params, name, of_a.params[i], of_b.params[other->second]);
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
