#include "collectors/model/libtorch_source.hpp"

#include <c10/util/Type.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <typeinfo>

namespace gradvane::collectors {
namespace {

class LibtorchSource final : public ModelSource {
 public:
  LibtorchSource(torch::nn::Module& module, torch::optim::Optimizer* optimizer)
      : module_(module), optimizer_(optimizer) {
    if (optimizer == nullptr) return;
    std::set<const void*> in_module;
    for (const auto& item : module.named_parameters())
      in_module.insert(item.value().unsafeGetTensorImpl());
    const bool owns_any = std::ranges::any_of(optimizer->param_groups(), [&](const auto& group) {
      return std::ranges::any_of(group.params(), [&](const at::Tensor& param) {
        return in_module.contains(param.unsafeGetTensorImpl());
      });
    });
    if (!in_module.empty() && !owns_any)
      throw std::invalid_argument(
          "attach: the optimizer owns none of the module's parameters; attach the module it was "
          "made from, after any .to() that replaces parameters");
  }

  const void* names_key() const noexcept override { return &module_; }
  const void* optimizer_key() const noexcept override { return optimizer_; }
  std::string optimizer_type() const override {
    return optimizer_ == nullptr ? std::string() : c10::demangle(typeid(*optimizer_).name());
  }

  std::vector<Named> named_parameters() const override {
    std::vector<Named> named;
    for (const auto& item : module_.named_parameters()) named.push_back({item.key(), item.value()});
    return named;
  }

  bool names_are_cheap() const noexcept override { return true; }

  std::vector<std::vector<at::Tensor>> optimizer_parameters() const override {
    std::vector<std::vector<at::Tensor>> groups;
    if (optimizer_ == nullptr) return groups;
    for (const auto& group : optimizer_->param_groups()) groups.push_back(group.params());
    return groups;
  }

  bool changed(std::span<const void* const> identity) const noexcept override {
    if (optimizer_ == nullptr) return false;
    std::size_t i = 0;
    for (const auto& group : optimizer_->param_groups())
      for (const at::Tensor& param : group.params()) {
        if (i >= identity.size() || identity[i] != param.unsafeGetTensorImpl()) return true;
        ++i;
      }
    return i != identity.size();
  }

  std::vector<Shard> shards(std::span<const at::Tensor> /*params*/) const override { return {}; }
  at::Tensor local_part(const at::Tensor& tensor) const override { return tensor; }

  std::int64_t steps_done() const override {
    std::int64_t done = 0;
    if (optimizer_ == nullptr) return done;
    for (const auto& entry : optimizer_->state()) {
      const torch::optim::OptimizerParamState* state = entry.second.get();
      if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(state))
        done = std::max(done, adam->step());
      else if (const auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(state))
        done = std::max(done, adamw->step());
      else if (const auto* adagrad = dynamic_cast<const torch::optim::AdagradParamState*>(state))
        done = std::max(done, adagrad->step());
      else if (const auto* rmsprop = dynamic_cast<const torch::optim::RMSpropParamState*>(state))
        done = std::max(done, rmsprop->step());
    }
    return done;
  }

  int learning_rates(double* out, int room) const noexcept override try {
    if (optimizer_ == nullptr) return 0;
    int count = 0;
    for (const auto& group : optimizer_->param_groups()) {
      if (count == room) break;
      if (group.has_options()) out[count++] = group.options().get_lr();
    }
    return count;
  } catch (...) {  // an optimizer whose options have no learning rate throws
    return 0;
  }

 private:
  torch::nn::Module& module_;
  torch::optim::Optimizer* optimizer_;
};

}  // namespace

std::unique_ptr<ModelSource> libtorch_source(torch::nn::Module& module,
                                             torch::optim::Optimizer* optimizer) {
  return std::make_unique<LibtorchSource>(module, optimizer);
}

}  // namespace gradvane::collectors
