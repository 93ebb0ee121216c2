#include "agent/snapshots/training_state.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>

#include "agent/snapshots/digest.hpp"
#include "agent/snapshots/state_tensors.hpp"
#include "collectors/tensors/tensor.hpp"
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
    case at::kFloat8_e5m2:
      return {1, 0x7C};
    case at::kFloat8_e4m3fn:  // which has no infinity, and one NaN
      return {1, 0x7F};
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

/// Whether the storage reaches as far as the elements do: what offloads parameters frees it.
bool has_memory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || collectors::facts_of(tensor).has_memory;
}

/// Where their copies are: in the memory that is there, if it fits. Those of a device's tensors lie side by side in one
/// block.
void make_room(StateCopy& copy, const std::vector<at::Tensor>& sources, Copies& copies) {
  constexpr std::int64_t kAlignment = 64;  // of any dtype
  bool fits = copy.tensors.size() == sources.size();
  for (std::size_t i = 0; fits && i < sources.size(); ++i)
    fits = copy.homes[i] == sources[i].device() && is_alike(copy.tensors[i], sources[i]);
  if (fits) return;
  copy.homes.clear();
  std::vector<std::int64_t> places;
  std::int64_t size = 0;
  for (const at::Tensor& source : sources) {
    copy.homes.push_back(source.device());
    places.push_back(size);
    if (copies.is_on_host(source)) continue;
    const auto bytes = static_cast<std::int64_t>(source.nbytes());
    size += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  copy.tensors.resize(sources.size());
  if (size > 0 && (!copy.pinned.defined() || copy.pinned.numel() < size)) {
    copy.tensors.assign(sources.size(), at::Tensor());  // they hold the block that goes
    copy.pinned.reset();
    copy.pinned = copies.host_memory(size);
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const at::Tensor& source = sources[i];
    at::Tensor& place = copy.tensors[i];
    if (copies.is_on_host(source)) {
      const bool is_in_block = size > 0 && place.defined() && place.is_alias_of(copy.pinned);
      if (!place.defined() || is_in_block || !is_alike(place, source))
        place = at::empty_like(source);
    } else {
      const auto bytes = static_cast<std::int64_t>(source.nbytes());
      const at::Tensor part = copy.pinned.narrow(0, places[i], bytes).view(source.scalar_type());
      const bool is_dense = source.is_non_overlapping_and_dense();
      place =
          is_dense ? part.as_strided(source.sizes(), source.strides()) : part.view(source.sizes());
    }
  }
}

/// A state of random numbers is a tensor on the CPU, of a device's too.
void put_random_numbers(c10::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state.clone());  // torch 2.11 takes none that lies within other memory
}

at::Tensor random_numbers(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

/// With a null behind each group.
std::vector<const void*> identity_of(const torch::optim::Optimizer& optimizer) {
  std::vector<const void*> params;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& param : group.params()) params.push_back(param.unsafeGetTensorImpl());
    params.push_back(nullptr);
  }
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
  for (const auto& list : user)
    for (const at::Tensor& tensor : list)
      if (!is_finite(tensor)) return "a state of the program's own";
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
std::vector<TrainingState::Named> TrainingState::named_tensors() const {
  std::vector<Named> named;
  std::set<const void*> seen;
  const auto add = [&](const std::string& name, const at::Tensor& tensor, bool is_buffer) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second)
      named.push_back({name, tensor, is_buffer});
  };
  for (const torch::nn::Module* module : modules_) {
    for (const auto& item : module->named_parameters()) add(item.key(), item.value(), false);
    for (const auto& item : module->named_buffers()) add(item.key(), item.value(), true);
  }
  for (const torch::optim::Optimizer* optimizer : optimizers_)
    for (const auto& group : optimizer->param_groups())
      for (const at::Tensor& param : group.params())
        add("a parameter of the optimizer", param, false);
  return named;
}

std::set<std::string> TrainingState::masks() const {
  const c10::NoGradGuard no_grad;
  std::set<std::string> found;
  for (const torch::nn::Module* module : modules_)
    for (const auto& item : module->named_buffers()) {
      const at::Tensor buffer = item.value().cpu().contiguous();
      if (!is_finite(buffer) && !buffer.isnan().any().item<bool>()) found.insert(item.key());
    }
  return found;
}

std::string TrainingState::unsupported() const {
  for (const auto& [name, tensor, is_buffer] : named_tensors()) {
    if (!tensor.is_cpu() && !tensor.is_cuda())
      return name + " is on neither a CPU nor a CUDA device";
    if (tensor.layout() != at::kStrided || tensor.is_quantized()) return name + " is not dense";
    if (!has_memory(tensor)) return name + " has an empty storage";
  }
  for (const torch::optim::Optimizer* optimizer : optimizers_)
    for (const auto& [key, state] : optimizer->state()) {
      bool is_there = true;
      if (!for_each_tensor(*state, [&](at::Tensor& tensor) { is_there &= has_memory(tensor); }))
        return "the state of an optimizer that is none of torch's is not known";
      if (!is_there) return "the state of an optimizer has an empty storage";
    }
  return {};
}

std::int64_t TrainingState::bytes() const {
  std::int64_t sum = 0;
  const auto add = [&](const at::Tensor& tensor) {
    sum += static_cast<std::int64_t>(tensor.nbytes());
  };
  for (const Named& named : named_tensors()) add(named.tensor);
  for (const torch::optim::Optimizer* optimizer : optimizers_)
    for (const auto& [key, state] : optimizer->state())
      (void)for_each_tensor(*state, [&](at::Tensor& tensor) { add(tensor); });
  return sum;
}

Flight TrainingState::copy(StateCopy& to, Copies& copies, bool overlaps) const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> sources;
  std::vector<bool> at_once;
  to.names.clear();
  for (const auto& [name, tensor, is_buffer] : named_tensors()) {
    to.names.push_back(name);
    sources.push_back(tensor);
    at_once.push_back(is_buffer);
  }
  to.optimizers.clear();
  for (const torch::optim::Optimizer* optimizer : optimizers_) {
    StateCopy::OfOptimizer& copied = to.optimizers.emplace_back();
    copied.params = identity_of(*optimizer);
    for (const auto& group : optimizer->param_groups())
      copied.options.push_back(group.options().clone());
    for (const void* key : copied.params) {
      if (key == nullptr) continue;
      const auto found = optimizer->state().find(const_cast<void*>(key));  // it compares, no more
      if (found == optimizer->state().end()) continue;
      copied.states.push_back({found->first, found->second->clone()});
      (void)for_each_tensor(*copied.states.back().state,
                            [&](at::Tensor& tensor) { sources.push_back(tensor); });
    }
  }
  to.devices.clear();
  for (const at::Tensor& source : sources)
    if (!source.is_cpu() && std::ranges::find(to.devices, source.device()) == to.devices.end())
      to.devices.push_back(source.device());
  sources.push_back(random_numbers(at::kCPU));
  for (const c10::Device device : to.devices) sources.push_back(random_numbers(device));
  at_once.resize(sources.size(), false);
  make_room(to, sources, copies);
  std::size_t next = to.names.size();
  for (StateCopy::OfOptimizer& copied : to.optimizers)
    for (StateCopy::OfParameter& one : copied.states)
      (void)for_each_tensor(*one.state, [&](at::Tensor& tensor) { tensor = to.tensors[next++]; });
  Flight flight = copies.out(to.tensors, sources, at_once, overlaps);
  to.user.clear();
  for (const UserState& own : user_) {
    auto& list = to.user.emplace_back();
    for (const at::Tensor& tensor : own.save()) list.push_back(tensor.detach().cpu().clone());
  }
  return flight;
}

std::string TrainingState::difference(const StateCopy& from) const {
  const std::vector<Named> now = named_tensors();
  if (now.size() != from.names.size())
    return "it has " + std::to_string(now.size()) + " parameters and buffers and had " +
           std::to_string(from.names.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].name != from.names[i])
      return now[i].name + " stands where " + from.names[i] + " was";
    if (!is_alike(now[i].tensor, from.tensors[i]))
      return now[i].name + " has another shape or type";
    if (now[i].tensor.device() != from.homes[i])
      return now[i].name + " is on " + now[i].tensor.device().str() + " and was on " +
             from.homes[i].str();
    if (!has_memory(now[i].tensor)) return now[i].name + " has an empty storage";
  }
  if (optimizers_.size() != from.optimizers.size()) return "an optimizer is new";
  for (std::size_t i = 0; i < optimizers_.size(); ++i)
    if (identity_of(*optimizers_[i]) != from.optimizers[i].params)
      return "an optimizer has other parameters or groups";
  if (user_.size() != from.user.size()) return "a state of the program's own is new";
  return {};
}

std::vector<std::string> TrainingState::restore(const StateCopy& from, Copies& copies,
                                                Flight& read_by, RollbackOptimizer optimizer,
                                                double lr_factor) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> targets;
  for (const Named& named : named_tensors()) targets.push_back(named.tensor);
  std::vector<at::Tensor> sources(
      from.tensors.begin(), from.tensors.begin() + static_cast<std::ptrdiff_t>(targets.size()));
  std::size_t next = targets.size();  // of the optimizers' tensors in from.tensors
  for (std::size_t i = 0; i < optimizers_.size() && optimizer != RollbackOptimizer::keep; ++i) {
    torch::optim::Optimizer& living = *optimizers_[i];
    const StateCopy::OfOptimizer& copied = from.optimizers[i];
    for (std::size_t group = 0; group < copied.options.size(); ++group) {
      torch::optim::OptimizerOptions& options = living.param_groups()[group].options();
      assign(options, *copied.options[group]);
      options.set_lr(options.get_lr() * lr_factor);
    }
    // State that was made since goes away. Tensors that are there keep their memory.
    auto before = std::move(living.state());
    living.state().clear();
    if (optimizer == RollbackOptimizer::reset) continue;
    for (const StateCopy::OfParameter& one : copied.states) {
      std::vector<at::Tensor> there;
      if (const auto found = before.find(one.key); found != before.end())
        (void)for_each_tensor(*found->second, [&](at::Tensor& tensor) { there.push_back(tensor); });
      auto state = one.state->clone();
      std::size_t index = 0;
      (void)for_each_tensor(*state, [&](at::Tensor& tensor) {
        const at::Tensor source = tensor;
        const c10::Device home = from.homes[next++];
        const bool fits = index < there.size() && is_alike(there[index], source) &&
                          there[index].device() == home && has_memory(there[index]);
        tensor = fits ? there[index]
                      : at::empty_strided(source.sizes(), source.strides(),
                                          source.options().device(home).pinned_memory(false));
        ++index;
        targets.push_back(tensor);
        sources.push_back(source);
      });
      living.state()[one.key] = std::move(state);
    }
  }
  read_by = copies.back(targets, sources);
  const std::size_t numbers = from.tensors.size() - 1 - from.devices.size();
  put_random_numbers(at::kCPU, from.tensors[numbers]);
  for (std::size_t i = 0; i < from.devices.size(); ++i)
    put_random_numbers(from.devices[i], from.tensors[numbers + 1 + i]);
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

void TrainingState::drop_gradients() {
  for (const Named& named : named_tensors()) {
    at::Tensor param = named.tensor;
    if (param.grad().defined()) param.mutable_grad() = at::Tensor();
  }
}

}  // namespace gradvane::agent
