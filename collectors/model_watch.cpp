#include "collectors/model_watch.hpp"

#include <c10/util/Type.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include "collectors/grouping.hpp"
#include "record/step_record.hpp"

namespace gradvane::collectors {
namespace {

using Names = std::map<const void*, std::vector<std::string>>;  ///< TensorImpl -> its names

const void* identity_of(const at::Tensor& tensor) noexcept { return tensor.unsafeGetTensorImpl(); }

std::vector<const void*> identities(const torch::optim::Optimizer* optimizer) {
  std::vector<const void*> all;
  if (optimizer == nullptr) return all;
  for (const auto& group : optimizer->param_groups())
    for (const at::Tensor& param : group.params()) all.push_back(identity_of(param));
  return all;
}

record::ParamInfo describe(const at::Tensor& tensor, std::vector<std::string> names) {
  record::ParamInfo info;
  info.name = std::move(names.front());
  info.aliases.assign(names.begin() + 1, names.end());
  info.shape = tensor.sizes().vec();
  info.numel = tensor.numel();
  info.dtype = c10::toString(tensor.scalar_type());
  info.device = tensor.device().str();
  info.requires_grad = tensor.requires_grad();
  return info;
}

/// .to() keeps the tensor and changes what it holds. A parameter that thaws is news; one that is frozen
/// for a while, as adversarial training does every step, is not.
bool differs(const at::Tensor& tensor, const record::ParamInfo& info) {
  return info.dtype != c10::toString(tensor.scalar_type()) || tensor.sizes() != info.shape ||
         info.device != tensor.device().str() || (tensor.requires_grad() && !info.requires_grad);
}

}  // namespace

ModelWatch::ModelWatch(std::string group_rule, int max_groups)
    : group_rule_(std::move(group_rule)), max_groups_(max_groups) {}

int ModelWatch::add(torch::nn::Module& module, torch::optim::Optimizer* optimizer) {
  if (optimizer != nullptr && find(*optimizer) >= 0)
    throw std::invalid_argument("attach: this optimizer is attached already");
  std::set<const void*> in_module;
  for (const auto& item : module.named_parameters()) in_module.insert(identity_of(item.value()));
  if (optimizer != nullptr && !in_module.empty()) {
    const auto owned = identities(optimizer);
    if (std::none_of(owned.begin(), owned.end(), [&](auto id) { return in_module.contains(id); }))
      throw std::invalid_argument(
          "attach: the optimizer owns none of the module's parameters; attach the module it was "
          "made from, after any .to() that replaces parameters");
  }
  Watched watched;
  watched.module = &module;
  watched.optimizer = optimizer;
  if (optimizer != nullptr) watched.type = c10::demangle(typeid(*optimizer).name());
  watched_.push_back(std::move(watched));
  rebuild();
  return optimizers() - 1;
}

int ModelWatch::find(const torch::optim::Optimizer& optimizer) const noexcept {
  for (std::size_t i = 0; i < watched_.size(); ++i)
    if (watched_[i].optimizer == &optimizer) return static_cast<int>(i);
  return -1;
}

bool ModelWatch::changed(int optimizer) const noexcept {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  if (watched.optimizer == nullptr) return false;
  std::size_t i = 0;
  for (const auto& group : watched.optimizer->param_groups())
    for (const at::Tensor& param : group.params())
      if (i >= watched.identity.size() || watched.identity[i++] != identity_of(param)) return true;
  return i != watched.identity.size();
}

bool ModelWatch::changed_anywhere() const {
  std::set<const void*> known;
  for (const Watched& watched : watched_) {
    for (std::size_t i = 0; i < watched.params.size(); ++i) {
      const ReadPlan& plan = *watched.plan;
      const auto param = static_cast<std::size_t>(plan.params[i]);
      if (differs(watched.params[i], plan.model->params[param])) return true;
      known.insert(identity_of(watched.params[i]));
    }
  }
  std::set<const void*> now;
  for (int i = 0; i < optimizers(); ++i) {
    if (changed(i)) return true;
    const Watched& watched = watched_[static_cast<std::size_t>(i)];
    for (const auto& item : watched.module->named_parameters())
      now.insert(identity_of(item.value()));
    now.insert(watched.identity.begin(), watched.identity.end());
  }
  return now != known;
}

int ModelWatch::user_metric(std::string_view name) {
  const auto found = std::find(user_metrics_.begin(), user_metrics_.end(), name);
  if (found != user_metrics_.end()) return static_cast<int>(found - user_metrics_.begin());
  if (user_metrics_.size() == record::kMaxUserMetrics) return -1;
  user_metrics_.emplace_back(name);
  return static_cast<int>(user_metrics_.size()) - 1;
}

void ModelWatch::rebuild() {
  // Names: in module order, so that a reader finds what the module prints.
  std::vector<torch::nn::Module*> modules;
  for (const Watched& watched : watched_)
    if (std::find(modules.begin(), modules.end(), watched.module) == modules.end())
      modules.push_back(watched.module);
  Names names;
  std::vector<std::pair<at::Tensor, const torch::nn::Module*>> in_order;
  for (std::size_t m = 0; m < modules.size(); ++m) {
    const std::string prefix = modules.size() > 1 ? "module" + std::to_string(m) + "." : "";
    for (const auto& item : modules[m]->named_parameters()) {
      auto& list = names[identity_of(item.value())];
      if (list.empty()) in_order.emplace_back(item.value(), modules[m]);
      list.push_back(prefix + item.key());
    }
  }

  std::set<const void*> owned_by_any;
  for (Watched& watched : watched_) {
    watched.identity = identities(watched.optimizer);
    owned_by_any.insert(watched.identity.begin(), watched.identity.end());
    watched.params.clear();
  }

  auto model = std::make_shared<record::ModelInfo>();
  model->id = next_model_++;
  model->user_metrics = user_metrics_;
  std::map<const void*, std::int32_t> index;  // TensorImpl -> ModelInfo::params
  std::vector<std::vector<std::int32_t>> entries(watched_.size());
  const auto list = [&](std::size_t w, const at::Tensor& tensor, std::vector<std::string> given) {
    const auto [found, fresh] =
        index.emplace(identity_of(tensor), static_cast<std::int32_t>(model->params.size()));
    if (fresh) model->params.push_back(describe(tensor, std::move(given)));
    watched_[w].params.push_back(tensor);
    entries[w].push_back(found->second);
  };

  for (std::size_t w = 0; w < watched_.size(); ++w) {
    Watched& watched = watched_[w];
    model->optimizers.push_back(watched.type);
    const std::set<const void*> owned(watched.identity.begin(), watched.identity.end());
    const bool first_of_module =
        std::none_of(watched_.begin(), watched_.begin() + static_cast<std::ptrdiff_t>(w),
                     [&](const Watched& other) { return other.module == watched.module; });
    for (const auto& [tensor, module] : in_order) {
      const void* id = identity_of(tensor);
      // What no optimizer owns (frozen, forgotten) is listed once, with its module's first optimizer.
      const bool unowned =
          !owned_by_any.contains(id) && module == watched.module && first_of_module;
      if (owned.contains(id) || unowned) list(w, tensor, names[id]);
    }
    if (watched.optimizer == nullptr) continue;
    std::set<const void*> listed;
    const auto& groups = watched.optimizer->param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& params = groups[g].params();
      for (std::size_t k = 0; k < params.size(); ++k) {
        const void* id = identity_of(params[k]);
        if (names.contains(id) || !listed.insert(id).second) continue;
        list(w, params[k],
             {"optimizer" + std::to_string(w) + ".group" + std::to_string(g) + "." +
              std::to_string(k)});
      }
    }
  }

  std::vector<std::string> flat;
  for (const record::ParamInfo& param : model->params) flat.push_back(param.name);
  Grouping grouping = group_parameters(flat, group_rule_, max_groups_);
  model->groups = std::move(grouping.names);
  for (std::size_t i = 0; i < model->params.size(); ++i)
    model->params[i].group = grouping.group_of[i];

  for (std::size_t w = 0; w < watched_.size(); ++w) {
    auto plan = std::make_shared<ReadPlan>();
    plan->id = next_plan_++;
    plan->optimizer = static_cast<std::int32_t>(w);
    plan->model = model;
    plan->params = std::move(entries[w]);
    watched_[w].plan = std::move(plan);
  }
}

const std::vector<at::Tensor>& ModelWatch::params(int optimizer) const noexcept {
  return watched_[static_cast<std::size_t>(optimizer)].params;
}

std::shared_ptr<const ReadPlan> ModelWatch::plan(int optimizer) const noexcept {
  return watched_[static_cast<std::size_t>(optimizer)].plan;
}

std::size_t ModelWatch::largest_plan() const noexcept {
  std::size_t largest = 0;
  for (const Watched& watched : watched_) largest = std::max(largest, watched.params.size());
  return largest;
}

std::int64_t ModelWatch::steps_done(int optimizer) const {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  if (watched.optimizer == nullptr) return 0;
  std::int64_t done = 0;
  for (const auto& entry : watched.optimizer->state()) {
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

int ModelWatch::learning_rates(int optimizer, double* out, int room) const noexcept try {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  if (watched.optimizer == nullptr) return 0;
  int count = 0;
  for (const auto& group : watched.optimizer->param_groups()) {
    if (count == room) break;
    if (group.has_options()) out[count++] = group.options().get_lr();
  }
  return count;
} catch (...) {  // an optimizer whose options have no learning rate throws
  return 0;
}

}  // namespace gradvane::collectors
