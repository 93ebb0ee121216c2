#include "agent/public/step_result.hpp"

#include <utility>

#include "record/names.hpp"

namespace gradvane::agent {
namespace {

Blame blame_of(const record::FirstNonfinite& first, std::string param) {
  Blame blame;
  blame.site = name_of(first.site);
  blame.kind = name_of(first.kind);
  blame.param = std::move(param);
  blame.element = first.element;
  return blame;
}

}  // namespace

StepResult step_result(const record::StepRecord& record, const record::ModelInfo& model) {
  StepResult result;
  result.step = record.step;
  result.run_step = record.run_step;
  result.loss = record.loss;
  result.grad_norm = record.grad_norm;
  result.grad_norm_at_step = record.grad_norm_at_step;
  result.clip_coefficient = record.clip_coefficient;
  result.micro_steps = record.micro_steps;
  result.read_at = name_of(record.read_at);
  result.skipped = name_of(record.skipped);
  result.loss_scale = record.loss_scale;
  result.learning_rates.assign(record.lr.begin(), record.lr.begin() + record.lr_count);
  const auto& counts = record.nonfinite[index_of(record::Site::grad)];
  result.grad_nonfinite = {counts[0], counts[1], counts[2]};
  if (record.first_nonfinite) {
    result.blame =
        blame_of(*record.first_nonfinite, model.param_name(record.first_nonfinite->param));
  }
  return result;
}

Incident incident_of(const record::Incident& incident) {
  Incident told;
  told.id = incident.id;
  told.kind = name_of(incident.kind);
  told.rank = incident.rank;
  told.first_step = incident.first_step;
  told.last_step = incident.last_step;
  told.steps = incident.steps;
  told.opened_at = incident.opened_at;
  told.closed_at = incident.closed_at;
  told.reopened = incident.reopened;
  if (incident.first) told.blame = blame_of(*incident.first, incident.param);
  for (const record::Appearance& seen : incident.order) {
    Blame blame;
    if (seen.first) blame = blame_of(*seen.first, seen.param);
    blame.site = name_of(seen.site);
    told.order.push_back({seen.run_step, std::move(blame), seen.last_finite});
  }
  if (incident.began_in) told.began_in = name_of(*incident.began_in);
  told.micro_step = incident.micro_step;
  if (incident.module)
    told.module = incident.module->name.empty() ? incident.module->type : incident.module->name;
  told.evidence = incident.evidence;
  told.last_good_step = incident.last_good_step;
  told.last_good_checkpoint = incident.last_good_checkpoint;
  return told;
}

}  // namespace gradvane::agent
