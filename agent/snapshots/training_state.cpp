#include "agent/snapshots/training_state.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>

#include "agent/snapshots/digest.hpp"
#include "agent/snapshots/state_tensors.hpp"
#include "record/checksum.hpp"

namespace gradvane::agent {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

FloatLayout layout_of(at::ScalarType type) noexcept {
  switch (type) {
    case at::kDouble:
    case at::kComplexDouble:
      return {8, 0x7FF0000000000000};
    case at::kFloat:
    case at::kComplexFloat:
      return {4, 0x7F800000};
    case at::kBFloat16:
      return {2, 0x7F80};
    case at::kHalf:
    case at::kComplexHalf:
      return {2, 0x7C00};
    default:
      return {};
  }
}

bool is_finite(const at::Tensor& tensor) {
  return all_finite(bytes_of(tensor), layout_of(tensor.scalar_type()));
}

bool is_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

/// Into the memory that is there, if it fits.
void copy_into(std::vector<at::Tensor>& place, std::size_t index, const at::Tensor& source) {
  if (index >= place.size()) place.resize(index + 1);
  at::Tensor& copy = place[index];
  if (!copy.defined() || !is_alike(copy, source)) copy = at::empty_like(source);
  copy.copy_(source);
}

void put_random_numbers(const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

at::Tensor random_numbers() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

std::vector<const void*> identity_of(const torch::optim::Optimizer& optimizer) {
  std::vector<const void*> params;
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& param : group.params()) params.push_back(param.unsafeGetTensorImpl());
  return params;
}

}  // namespace

std::int64_t StateCopy::bytes() const noexcept {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += static_cast<std::int64_t>(tensor.nbytes());
  return sum;
}

std::uint64_t StateCopy::checksum() const noexcept {
  std::uint64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum = record::checksum(bytes_of(tensor), sum);
  for (const auto& list : user)
    for (const at::Tensor& tensor : list) sum = record::checksum(bytes_of(tensor), sum);
  return sum;
}

std::string StateCopy::nonfinite(const std::set<std::string>& masks) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_finite(tensors[i])) continue;
    if (i >= names.size()) return "the optimizer's state";
    if (!masks.contains(names[i])) return names[i];
  }
  return {};
}

void TrainingState::add(torch::nn::Module& module, torch::optim::Optimizer* optimizer) {
  if (std::ranges::find(modules_, &module) == modules_.end()) modules_.push_back(&module);
  if (optimizer != nullptr) optimizers_.push_back(optimizer);
}

void TrainingState::add(std::string name, SaveState save, LoadState load) {
  user_.push_back({std::move(name), std::move(save), std::move(load)});
}

/// Each once, also those that only an optimizer has.
TrainingState::Named TrainingState::named_tensors() const {
  Named named;
  std::set<const void*> seen;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second)
      named.emplace_back(name, tensor);
  };
  for (const torch::nn::Module* module : modules_) {
    for (const auto& item : module->named_parameters()) add(item.key(), item.value());
    for (const auto& item : module->named_buffers()) add(item.key(), item.value());
  }
  for (const torch::optim::Optimizer* optimizer : optimizers_)
    for (const auto& group : optimizer->param_groups())
      for (const at::Tensor& param : group.params()) add("a parameter of the optimizer", param);
  return named;
}

std::set<std::string> TrainingState::masks() const {
  const c10::NoGradGuard no_grad;
  std::set<std::string> found;
  for (const torch::nn::Module* module : modules_)
    for (const auto& item : module->named_buffers()) {
      const at::Tensor buffer = item.value().contiguous();
      if (!is_finite(buffer) && !buffer.isnan().any().item<bool>()) found.insert(item.key());
    }
  return found;
}

std::string TrainingState::unsupported() const {
  for (const auto& [name, tensor] : named_tensors()) {
    if (!tensor.is_cpu()) return name + " is not on a CPU";
    if (tensor.layout() != at::kStrided || tensor.is_quantized()) return name + " is not dense";
  }
  for (const torch::optim::Optimizer* optimizer : optimizers_)
    for (const auto& [key, state] : optimizer->state())
      if (!for_each_tensor(*state, [](at::Tensor&) {}))
        return "the state of an optimizer that is none of torch's is not known";
  return {};
}

std::int64_t TrainingState::bytes() const {
  std::int64_t sum = 0;
  const auto add = [&](const at::Tensor& tensor) {
    sum += static_cast<std::int64_t>(tensor.nbytes());
  };
  for (const auto& [name, tensor] : named_tensors()) add(tensor);
  for (const torch::optim::Optimizer* optimizer : optimizers_)
    for (const auto& [key, state] : optimizer->state())
      (void)for_each_tensor(*state, [&](at::Tensor& tensor) { add(tensor); });
  return sum;
}

void TrainingState::copy(StateCopy& to) const {
  const c10::NoGradGuard no_grad;
  std::size_t next = 0;
  to.names.clear();
  for (const auto& [name, tensor] : named_tensors()) {
    to.names.push_back(name);
    copy_into(to.tensors, next++, tensor);
  }
  to.optimizers.clear();
  for (const torch::optim::Optimizer* optimizer : optimizers_) {
    StateCopy::OfOptimizer& copied = to.optimizers.emplace_back();
    copied.params = identity_of(*optimizer);
    for (const auto& group : optimizer->param_groups())
      copied.rates.push_back(group.options().get_lr());
    for (const void* key : copied.params) {
      const auto found = optimizer->state().find(const_cast<void*>(key));  // it compares, no more
      if (found == optimizer->state().end()) continue;
      auto state = found->second->clone();
      (void)for_each_tensor(*state, [&](at::Tensor& tensor) {
        copy_into(to.tensors, next, tensor);
        tensor = to.tensors[next++];
      });
      copied.states.push_back({found->first, std::move(state)});
    }
  }
  copy_into(to.tensors, next++, random_numbers());
  to.tensors.resize(next);
  to.user.clear();
  for (const UserState& own : user_) {
    auto& list = to.user.emplace_back();
    for (const at::Tensor& tensor : own.save()) list.push_back(tensor.detach().cpu().clone());
  }
}

std::string TrainingState::difference(const StateCopy& from) const {
  const Named now = named_tensors();
  if (now.size() != from.names.size())
    return "it has " + std::to_string(now.size()) + " parameters and buffers and had " +
           std::to_string(from.names.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].first != from.names[i])
      return now[i].first + " stands where " + from.names[i] + " was";
    if (!is_alike(now[i].second, from.tensors[i]))
      return now[i].first + " has another shape or type";
  }
  if (optimizers_.size() != from.optimizers.size()) return "an optimizer is new";
  for (std::size_t i = 0; i < optimizers_.size(); ++i)
    if (identity_of(*optimizers_[i]) != from.optimizers[i].params)
      return "an optimizer has other parameters";
  if (user_.size() != from.user.size()) return "a state of the program's own is new";
  return {};
}

std::vector<std::string> TrainingState::restore(const StateCopy& from, RollbackOptimizer optimizer,
                                                double lr_factor) {
  const c10::NoGradGuard no_grad;
  const Named now = named_tensors();
  for (std::size_t i = 0; i < now.size(); ++i) {
    at::Tensor target = now[i].second;
    target.copy_(from.tensors[i]);
  }
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    torch::optim::Optimizer& living = *optimizers_[i];
    const StateCopy::OfOptimizer& copied = from.optimizers[i];
    if (optimizer == RollbackOptimizer::keep) continue;
    for (std::size_t group = 0; group < copied.rates.size(); ++group)
      living.param_groups()[group].options().set_lr(copied.rates[group] * lr_factor);
    if (optimizer == RollbackOptimizer::restore)
      restore_states(living, copied);
    else
      living.state().clear();
  }
  put_random_numbers(from.tensors.back());
  std::vector<std::string> errors;
  for (std::size_t i = 0; i < user_.size(); ++i) {
    try {
      user_[i].load(from.user[i]);
    } catch (const std::exception& error) {
      errors.push_back("loading the state of " + user_[i].name + " failed: " + error.what());
    }
  }
  return errors;
}

/// State that was made since goes away. Tensors that are there keep their memory.
void TrainingState::restore_states(torch::optim::Optimizer& optimizer,
                                   const StateCopy::OfOptimizer& from) const {
  auto before = std::move(optimizer.state());
  optimizer.state().clear();
  for (const StateCopy::OfParameter& copied : from.states) {
    std::vector<at::Tensor> living;
    if (const auto found = before.find(copied.key); found != before.end())
      (void)for_each_tensor(*found->second, [&](at::Tensor& tensor) { living.push_back(tensor); });
    auto state = copied.state->clone();
    std::size_t next = 0;
    (void)for_each_tensor(*state, [&](at::Tensor& tensor) {
      const std::size_t at = next++;
      if (at < living.size() && is_alike(living[at], tensor)) {
        living[at].copy_(tensor);
        tensor = living[at];
      } else {
        tensor = tensor.clone();
      }
    });
    optimizer.state()[copied.key] = std::move(state);
  }
}

void TrainingState::drop_gradients() {
  for (auto& [name, tensor] : named_tensors()) {
    at::Tensor param = tensor;
    if (param.grad().defined()) param.mutable_grad() = at::Tensor();
  }
}

}  // namespace gradvane::agent
