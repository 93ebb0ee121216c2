#include "tests/exporters/fake_run.hpp"

#include <cmath>

#include "record/tensor_numbers.hpp"

namespace gradvane::exporters::fakes {

using record::NonfiniteKind;
using record::ParamState;
using record::Phase;
using record::Site;
using record::SyncKind;
using record::SyncOrigin;

namespace {

constexpr double kStart = 1'700'000'000;  // seconds since the epoch
constexpr double kStepSeconds = 0.125;

record::TensorNumbers numbers(std::int64_t numel, double norm) {
  record::TensorNumbers result;
  result.numel = numel;
  result.zero = numel / 100;
  result.subnormal = numel / 1000;
  result.norm = norm;
  result.sum = norm / 8;
  result.abs_max = norm / 4;
  result.abs_min_nonzero = norm / 1e6;
  for (const record::TensorColumn& column : record::kTensorColumns)
    if (result.*column.value == 0) result.*column.value = norm / 16;
  return result;
}

record::ParamInfo param(std::string name, std::int32_t group, std::vector<std::int64_t> shape) {
  record::ParamInfo info;
  info.name = std::move(name);
  info.group = group;
  info.shape = std::move(shape);
  info.numel = 1;
  for (const std::int64_t size : info.shape) info.numel *= size;
  info.dtype = "float32";
  info.device = "cpu";
  return info;
}

}  // namespace

record::RunInfo fake_run() {
  record::RunInfo run;
  run.run = "fake-gpt";
  run.run_id = "1234.0";
  run.host = "somewhere";
  run.pid = 4242;
  run.version = "0.1.0";
  run.torch_version = "2.11.0";
  run.start_time = kStart;
  run.settings = {{"weight_every", "10", "code"}, {"mode", "lagged", "default"}};
  return run;
}

std::shared_ptr<const record::ModelInfo> fake_model(int layers) {
  auto model = std::make_shared<record::ModelInfo>();
  model->id = 1;
  model->groups = {"embedding"};
  model->params = {param("embedding.weight", 0, {64, 32})};
  model->params[0].aliases = {"head.weight"};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string name = "blocks." + std::to_string(layer);
    const auto group = static_cast<std::int32_t>(model->groups.size());
    model->groups.push_back(name + ".attention");
    model->groups.push_back(name + ".mlp");
    model->params.push_back(param(name + ".attention.weight", group, {32, 96}));
    model->params.push_back(param(name + ".attention.bias", group, {96}));
    model->params.push_back(param(name + ".mlp.weight", group + 1, {32, 128}));
    model->params.push_back(param(name + ".mlp.bias", group + 1, {128}));
  }
  model->optimizers = {"AdamW"};
  model->user_metrics = {"accuracy"};
  return model;
}

FakeTraining::FakeTraining(std::shared_ptr<const record::ModelInfo> model)
    : model_(std::move(model)) {}

FakeStep& FakeTraining::next() {
  FakeStep step;
  record::StepRecord& record = step.record;
  record.nonfinite_total = step_.record.nonfinite_total;
  record.nonfinite_steps_total = step_.record.nonfinite_steps_total;
  record.step = record.run_step = step_.record.run_step + 1;
  const auto t = static_cast<double>(record.step);
  record.time = kStart + kStepSeconds * t;
  record.loss = 1.5 + 2.5 * std::exp(-t / 60) + 0.05 * std::sin(t * 1.7);
  record.grad_norm = 0.8 + 0.5 * std::exp(-t / 40) + 0.1 * std::sin(t * 2.3);
  record.grad_norm_at_step = std::min(1.0, *record.grad_norm);
  record.clip_coefficient = std::min(1.0, 1.0 / *record.grad_norm);
  record.read_at = record::ReadAt::clip;
  record.grad_abs_max = *record.grad_norm / 4;
  record.grad_abs_min_nonzero = 1e-9;
  record.grad_health = 1;
  record.lr = {1e-3};
  record.lr_count = 1;
  record.user[0] = 1 - std::exp(-t / 60);
  record.user_count = 1;
  if (record.step > 1) record.step_seconds = kStepSeconds;
  record.phase_seconds = {0.005, 0.04, 0.07, 0.01, 0};
  record.agent_seconds = 0.0004;
  record.tokens = 2048;
  record.process_resident_bytes = 512 << 20;
  record::StepSyncs& syncs = record.syncs.emplace();
  auto& calls = syncs.calls[index_of(SyncOrigin::training)];
  calls[index_of(SyncKind::d2h_read)] = 2;
  calls[index_of(SyncKind::memcpy)] = 1;
  calls[index_of(SyncKind::device)] = 1;
  syncs.seconds[index_of(SyncOrigin::training)] = 0.03125;
  syncs.polls = 4;
  const bool reads_weights = record.step % 10 == 0;
  record.site_measured[index_of(Site::loss)] = true;
  record.site_measured[index_of(Site::grad)] = true;
  if (reads_weights) {
    record.site_measured[index_of(Site::weight)] = true;
    record.weight_norm = 25 + t / 100;
    record.update_ratio = 1e-3;
  }

  step.detail.groups.resize(model_->groups.size());
  step.detail.params.resize(model_->params.size());
  for (std::size_t i = 0; i < model_->params.size(); ++i) {
    const record::ParamInfo& info = model_->params[i];
    record::ParamStats& stats = step.detail.params[i];
    const double norm = *record.grad_norm / static_cast<double>(i + 1);
    stats.state = ParamState::finite;
    stats.grad = numbers(info.numel, norm);
    if (reads_weights) {
      stats.weight = numbers(info.numel, 5);
      stats.update_ratio = 1e-3 * static_cast<double>(i + 1);
    }
    record.grad_numel += info.numel;
    record.grad_zero += stats.grad->zero;
    record.grad_subnormal += stats.grad->subnormal;
    ++record.params[index_of(ParamState::finite)];

    record::GroupStats& group = step.detail.groups[static_cast<std::size_t>(info.group)];
    ++group.params;
    group.grad_norm = std::hypot(group.grad_norm.value_or(0), norm);
    group.grad_abs_max = std::max(group.grad_abs_max.value_or(0), norm / 4);
    group.grad_abs_min_nonzero = 1e-9;
    group.grad_zero_ratio = 0.01;
    group.grad_subnormal_ratio = 0.001;
    for (const record::TensorNumber& number : record::kTensorNumbers) {
      if (number.site != Site::grad) continue;
      if (!(group.*number.group)) group.*number.group = value_of(number, stats);
      if (number.step != nullptr && !(record.*number.step))
        record.*number.step = value_of(number, stats);
    }
    if (reads_weights) {
      group.weight_norm = 7;
      group.update_ratio = 1e-3;
    }
  }
  step_ = std::move(step);
  return step_;
}

void FakeTraining::poison_gradient(std::int32_t param, NonfiniteKind kind, std::int64_t element) {
  record::ParamStats& stats = step_.detail.params[static_cast<std::size_t>(param)];
  if (stats.state != ParamState::nonfinite) {
    --step_.record.params[index_of(stats.state)];
    ++step_.record.params[index_of(ParamState::nonfinite)];
  }
  stats.state = ParamState::nonfinite;
  ++stats.grad->nonfinite[index_of(kind)];
  stats.grad->first_nonfinite = element;
  const auto group =
      static_cast<std::size_t>(model_->params[static_cast<std::size_t>(param)].group);
  ++step_.detail.groups[group].nonfinite[index_of(Site::grad)][index_of(kind)];
  const record::FirstNonfinite first{Site::grad, kind, param, element};
  if (!step_.record.first_nonfinite) step_.record.first_nonfinite = first;
  auto& by_site = step_.record.first_by_site[index_of(Site::grad)];
  if (!by_site) by_site = first;
  count(Site::grad, kind);
}

void FakeTraining::poison_loss(double value) {
  step_.record.loss = value;
  const auto kind = std::isnan(value) ? NonfiniteKind::nan
                    : value > 0       ? NonfiniteKind::pos_inf
                                      : NonfiniteKind::neg_inf;
  step_.record.first_nonfinite = record::FirstNonfinite{Site::loss, kind, -1, -1};
  step_.record.first_by_site[index_of(Site::loss)] = step_.record.first_nonfinite;
  count(Site::loss, kind);
}

void FakeTraining::count(Site site, NonfiniteKind kind) {
  record::StepRecord& record = step_.record;
  const std::size_t s = index_of(site);
  const bool is_first = record.nonfinite[s] == record::NonfiniteCounts{};
  if (is_first) ++record.nonfinite_steps_total[s];
  ++record.nonfinite[s][index_of(kind)];
  ++record.nonfinite_total[s][index_of(kind)];
}

void add_site(record::SyncSummary& syncs, record::SyncSite site) {
  const auto origin = index_of(site.origin);
  auto& total = syncs.totals[origin][index_of(site.kind)];
  total.calls += site.total.calls;
  total.seconds += site.total.seconds;
  if (site.origin == SyncOrigin::training && site.kind != SyncKind::rejected_in_capture) {
    auto& phase = syncs.by_phase[index_of(site.phase.value_or(Phase::other))];
    phase.calls += site.total.calls;
    phase.seconds += site.total.seconds;
    auto& part = syncs.parts[index_of(record::SyncPart::in_steps)];
    part.calls += site.total.calls;
    part.seconds += site.total.seconds;
  }
  site.in_steps = site.total;
  syncs.sites.push_back(std::move(site));
}

record::SyncSummary fake_syncs(std::int64_t steps) {
  record::SyncSummary syncs;
  syncs.source = record::SyncSource::cupti;
  syncs.reason = record::SyncReason::counting;
  syncs.steps = syncs.whole_steps = steps;
  syncs.covered_seconds = kStepSeconds * static_cast<double>(steps);
  syncs.budget = 8;
  if (steps > 0) {
    syncs.most_in_step = 4;
    syncs.most_in_step_at = 1;
  }
  syncs.polls[index_of(SyncOrigin::training)] = {4 * steps, static_cast<double>(steps) / 4096};
  if (steps <= 0) return syncs;
  const auto often = [&](std::int64_t calls, double seconds) {
    return record::SyncTally{calls * steps, seconds * static_cast<double>(steps)};
  };
  add_site(syncs, {.id = 1,
                   .kind = SyncKind::d2h_read,
                   .phase = Phase::backward,
                   .location = "train.py:41",
                   .file = "/data/train.py",
                   .line = 41,
                   .function = "train_step",
                   .stack = {"/data/train.py:80 main", "/data/train.py:97 <module>"},
                   .thread = "python3",
                   .total = often(2, 0.015625),
                   .max_seconds = 0.0625});
  add_site(syncs, {.id = 2,
                   .kind = SyncKind::device,
                   .phase = Phase::other,
                   .location = "<string>:7",
                   .file = "<string>",
                   .line = 7,
                   .function = "Meter.update.<locals>.read",
                   .stack = {},
                   .thread = "python3",
                   .total = often(1, 0.0078125),
                   .max_seconds = 0.015625});
  add_site(syncs, {.id = 3,
                   .kind = SyncKind::memcpy,
                   .phase = Phase::data,
                   .location = "train.py:41",
                   .file = "/data/train.py",
                   .line = 41,
                   .function = "train_step",
                   .stack = {},
                   .thread = "python3",
                   .total = often(1, 0.00390625),
                   .max_seconds = 0.00390625});
  add_site(syncs, {.id = 4,
                   .kind = SyncKind::alloc_free,
                   .phase = {},
                   .location = "libcublas.so.12!f+0x12",
                   .file = {},
                   .function = {},
                   .stack = {},
                   .thread = "pt_autograd_0",
                   .total = {1, 0.001953125},
                   .max_seconds = 0.001953125});
  add_site(syncs, {.id = 5,
                   .kind = SyncKind::event,
                   .origin = SyncOrigin::gradvane,
                   .phase = {},
                   .location = "gradvane",
                   .file = {},
                   .function = "gradvane::stop",
                   .stack = {},
                   .thread = "gradvane",
                   .total = {1, 0.0009765625},
                   .max_seconds = 0.0009765625});
  return syncs;
}

record::SyncSummary blind_syncs(record::SyncSource source, record::SyncReason reason) {
  record::SyncSummary syncs;
  syncs.source = source;
  syncs.reason = reason;
  syncs.blind_seconds = 1.5;
  return syncs;
}

record::Incident fake_incident(std::int64_t id, std::int64_t run_step) {
  record::Incident incident;
  incident.id = id;
  incident.first_step = incident.last_step = run_step;
  incident.steps = 1;
  incident.opened_at = kStart + kStepSeconds * static_cast<double>(run_step);
  incident.first = record::FirstNonfinite{Site::grad, NonfiniteKind::nan, 3, 7};
  incident.param = "blocks.0.mlp.weight";
  incident.evidence = "1 NaN in the gradient of blocks.0.mlp.weight, the first at element 7";
  return incident;
}

}  // namespace gradvane::exporters::fakes
