#include "agent/step_result.hpp"

#include "record/names.hpp"

namespace gradvane::agent {

StepResult step_result(const record::StepRecord& record, const record::ModelInfo& model) {
  StepResult result;
  result.step = record.step;
  result.run_step = record.run_step;
  result.loss = record.loss;
  result.grad_norm = record.grad_norm;
  result.grad_norm_at_step = record.grad_norm_at_step;
  result.clip_coefficient = record.clip_coefficient;
  const auto& counts = record.nonfinite[static_cast<std::size_t>(record::Site::grad)];
  result.grad_nonfinite = {counts[0], counts[1], counts[2]};
  if (record.first_nonfinite) {
    const record::FirstNonfinite& first = *record.first_nonfinite;
    Blame blame;
    blame.site = name_of(first.site);
    blame.kind = name_of(first.kind);
    blame.element = first.element;
    const auto param = static_cast<std::size_t>(first.param);
    if (first.param >= 0 && param < model.params.size()) blame.param = model.params[param].name;
    result.blame = std::move(blame);
  }
  return result;
}

}  // namespace gradvane::agent
