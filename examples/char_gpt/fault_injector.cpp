#include "examples/char_gpt/fault_injector.hpp"

#include <c10/core/GradMode.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <stdexcept>

namespace char_gpt {
namespace {

std::string some_names(const NamedTensors& parameters) {
  constexpr std::size_t kShown = 6;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, parameters.size()); ++i) {
    names += (i == 0 ? "" : ", ") + parameters[i].first;
  }
  if (parameters.size() > kShown) {
    names += " and " + std::to_string(parameters.size() - kShown) + " more";
  }
  return names;
}

}  // namespace

at::Tensor middle_element(const at::Tensor& tensor) {
  // By strides, not by a flat view: a gradient need not be contiguous.
  std::int64_t index = tensor.numel() / 2;
  at::Tensor element = tensor;
  for (std::int64_t below = tensor.numel(); element.dim() > 0;) {
    below /= element.size(0);
    element = element.select(0, index / below);
    index %= below;
  }
  return element;
}

FaultInjector::FaultInjector(const std::vector<Fault>& faults, const NamedTensors& parameters) {
  for (const auto& fault : faults) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& item) { return item.first == fault.param; });
    if (found == parameters.end()) {
      throw std::invalid_argument("--fault: this model has no parameter '" + fault.param +
                                  "'; it has " + some_names(parameters));
    }
    targets_.push_back({.fault = fault, .parameter = found->second});
  }
}

bool FaultInjector::poison(std::int64_t step) {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& target : targets_) {
    if (target.fault.in_state || !target.fault.is_due(step)) continue;
    const at::Tensor& gradient = target.parameter.grad();
    if (!gradient.defined()) {
      throw std::runtime_error("--fault: " + target.fault.param + " has no gradient at step " +
                               std::to_string(step));
    }
    auto element = middle_element(gradient);
    if (target.fault.transient) saved_.push_back({.element = element, .value = element.clone()});
    element.fill_(target.fault.value());
  }
  return !saved_.empty();
}

void FaultInjector::poison_state(std::int64_t step, torch::optim::Optimizer& optimizer) {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& target : targets_) {
    if (!target.fault.in_state || !target.fault.is_due(step)) continue;
    const auto found = optimizer.state().find(target.parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // its first step was left out
    auto& state = static_cast<torch::optim::AdamWParamState&>(*found->second);
    middle_element(state.exp_avg()).fill_(target.fault.value());
  }
}

void FaultInjector::restore() {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& saved : saved_) saved.element.copy_(saved.value);
  saved_.clear();
}

}  // namespace char_gpt
