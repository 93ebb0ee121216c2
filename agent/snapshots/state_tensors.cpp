#include "agent/snapshots/state_tensors.hpp"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace gradvane::agent {
namespace {

using Visit = std::function<void(at::Tensor&)>;

void visit_all(const Visit& visit, std::initializer_list<at::Tensor*> tensors) {
  for (at::Tensor* tensor : tensors)
    if (tensor->defined()) visit(*tensor);
}

void visit_lbfgs(torch::optim::LBFGSParamState& state, const Visit& visit) {
  visit_all(visit, {&state.d(), &state.H_diag(), &state.prev_flat_grad()});
  for (auto* list : {&state.old_dirs(), &state.old_stps(), &state.ro()})
    for (at::Tensor& tensor : *list) visit_all(visit, {&tensor});
  if (state.al())
    for (at::Tensor& tensor : *state.al()) visit_all(visit, {&tensor});
}

template <typename Options>
bool assigned(torch::optim::OptimizerOptions& to, const torch::optim::OptimizerOptions& from) {
  auto* mine = dynamic_cast<Options*>(&to);
  const auto* theirs = dynamic_cast<const Options*>(&from);
  if (mine == nullptr || theirs == nullptr) return false;
  *mine = *theirs;
  return true;
}

}  // namespace

void assign(torch::optim::OptimizerOptions& to, const torch::optim::OptimizerOptions& from) {
  namespace optim = torch::optim;
  if (assigned<optim::SGDOptions>(to, from) || assigned<optim::AdamOptions>(to, from) ||
      assigned<optim::AdamWOptions>(to, from) || assigned<optim::RMSpropOptions>(to, from) ||
      assigned<optim::AdagradOptions>(to, from) || assigned<optim::LBFGSOptions>(to, from))
    return;
  to.set_lr(from.get_lr());
}

bool for_each_tensor(torch::optim::OptimizerParamState& state, const Visit& visit) {
  namespace optim = torch::optim;
  if (auto* sgd = dynamic_cast<optim::SGDParamState*>(&state)) {
    visit_all(visit, {&sgd->momentum_buffer()});
  } else if (auto* adam = dynamic_cast<optim::AdamParamState*>(&state)) {
    visit_all(visit, {&adam->exp_avg(), &adam->exp_avg_sq(), &adam->max_exp_avg_sq()});
  } else if (auto* adamw = dynamic_cast<optim::AdamWParamState*>(&state)) {
    visit_all(visit, {&adamw->exp_avg(), &adamw->exp_avg_sq(), &adamw->max_exp_avg_sq()});
  } else if (auto* rmsprop = dynamic_cast<optim::RMSpropParamState*>(&state)) {
    visit_all(visit, {&rmsprop->square_avg(), &rmsprop->momentum_buffer(), &rmsprop->grad_avg()});
  } else if (auto* adagrad = dynamic_cast<optim::AdagradParamState*>(&state)) {
    visit_all(visit, {&adagrad->sum()});
  } else if (auto* lbfgs = dynamic_cast<optim::LBFGSParamState*>(&state)) {
    visit_lbfgs(*lbfgs, visit);
  } else {
    return false;
  }
  return true;
}

}  // namespace gradvane::agent
