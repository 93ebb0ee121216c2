#include "collectors/model_watch.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "collectors/grouping.hpp"
#include "record/step_record.hpp"

namespace gradvane::collectors {
namespace {

using Names = std::map<const void*, std::vector<std::string>>;  ///< TensorImpl -> its names

const void* identity_of(const at::Tensor& tensor) noexcept { return tensor.unsafeGetTensorImpl(); }

std::vector<const void*> identities(const ModelSource& source) {
  std::vector<const void*> all;
  for (const auto& group : source.optimizer_parameters())
    for (const at::Tensor& param : group) all.push_back(identity_of(param));
  return all;
}

/// As torch.dtype has it: float32, bfloat16. Looked at for every parameter in every step, so it is made once.
const std::string& dtype_name(c10::ScalarType type) {
  static const auto kNames = [] {
    std::array<std::string, c10::NumScalarTypes> names;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto each = static_cast<c10::ScalarType>(i);
      try {
        names[i] = c10::getDtypeNames(each).first;
      } catch (...) {  // none that a parameter can have
        names[i] = c10::toString(each);
      }
    }
    return names;
  }();
  return kNames[static_cast<std::size_t>(type)];
}

record::ParamInfo describe(const at::Tensor& tensor, std::vector<std::string> names) {
  record::ParamInfo info;
  info.name = std::move(names.front());
  info.aliases.assign(names.begin() + 1, names.end());
  info.shape = tensor.sizes().vec();
  info.numel = tensor.numel();
  info.dtype = dtype_name(tensor.scalar_type());
  info.device = tensor.device().str();
  info.requires_grad = tensor.requires_grad();
  return info;
}

/// .to() keeps the tensor and changes what it holds. A parameter that thaws is news; one that is frozen
/// for a while, as adversarial training does every step, is not.
bool differs(const at::Tensor& tensor, const record::ParamInfo& info) {
  return info.dtype != dtype_name(tensor.scalar_type()) || tensor.sizes() != info.shape ||
         info.device != tensor.device().str() || (tensor.requires_grad() && !info.requires_grad);
}

}  // namespace

ModelWatch::ModelWatch(std::string group_rule, int max_groups)
    : group_rule_(std::move(group_rule)), max_groups_(max_groups) {}

int ModelWatch::add(std::unique_ptr<ModelSource> source) {
  if (source->optimizer_key() != nullptr && find(source->optimizer_key()) >= 0)
    throw std::invalid_argument("attach: this optimizer is attached already");
  Watched watched;
  watched.type = source->optimizer_type();
  watched.source = std::move(source);
  watched_.push_back(std::move(watched));
  rebuild();
  return optimizers() - 1;
}

void ModelWatch::remove(int optimizer) noexcept {
  Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  watched.source.reset();
  watched.identity.clear();
}

bool ModelWatch::is_removed(int optimizer) const noexcept {
  return watched_[static_cast<std::size_t>(optimizer)].source == nullptr;
}

int ModelWatch::find(const void* optimizer_key) const noexcept {
  for (std::size_t i = 0; i < watched_.size(); ++i)
    if (watched_[i].source != nullptr && watched_[i].source->optimizer_key() == optimizer_key)
      return static_cast<int>(i);
  return -1;
}

bool ModelWatch::changed(int optimizer) const noexcept {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  return watched.source != nullptr && watched.source->changed(watched.identity);
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
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Watched& watched = watched_[i];
    if (watched.source == nullptr) continue;
    if (changed(static_cast<int>(i))) return true;
    now.insert(watched.identity.begin(), watched.identity.end());
    if (!watched.source->names_are_cheap()) {  // what is new and trains, the optimizer shows
      for (const at::Tensor& param : watched.params) now.insert(identity_of(param));
      continue;
    }
    if (!is_first_of_names(i)) continue;
    for (const auto& item : watched.source->named_parameters())
      now.insert(identity_of(item.tensor));
  }
  return now != known;
}

/// Whether nobody before it has the same names.
bool ModelWatch::is_first_of_names(std::size_t optimizer) const noexcept {
  const void* key = watched_[optimizer].source->names_key();
  return std::none_of(watched_.begin(), watched_.begin() + static_cast<std::ptrdiff_t>(optimizer),
                      [&](const Watched& other) {
                        return other.source != nullptr && other.source->names_key() == key;
                      });
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
  std::vector<const ModelSource*> sources;
  for (std::size_t w = 0; w < watched_.size(); ++w)
    if (watched_[w].source != nullptr && is_first_of_names(w))
      sources.push_back(watched_[w].source.get());
  Names names;
  std::vector<std::pair<at::Tensor, const void*>> in_order;  // with the key of their names
  for (std::size_t m = 0; m < sources.size(); ++m) {
    const std::string prefix = sources.size() > 1 ? "module" + std::to_string(m) + "." : "";
    for (const auto& item : sources[m]->named_parameters()) {
      auto& list = names[identity_of(item.tensor)];
      if (list.empty()) in_order.emplace_back(item.tensor, sources[m]->names_key());
      list.push_back(prefix + item.name);
    }
  }

  std::set<const void*> owned_by_any;
  for (Watched& watched : watched_) {
    watched.params.clear();
    if (watched.source == nullptr) continue;
    watched.identity = identities(*watched.source);
    owned_by_any.insert(watched.identity.begin(), watched.identity.end());
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
    if (watched.source == nullptr) continue;
    const std::set<const void*> owned(watched.identity.begin(), watched.identity.end());
    const bool is_first = is_first_of_names(w);
    for (const auto& [tensor, key] : in_order) {
      const void* id = identity_of(tensor);
      // What no optimizer owns (frozen, forgotten) is listed once, with its module's first optimizer.
      const bool unowned =
          !owned_by_any.contains(id) && key == watched.source->names_key() && is_first;
      if (owned.contains(id) || unowned) list(w, tensor, names[id]);
    }
    std::set<const void*> listed;
    const auto groups = watched.source->optimizer_parameters();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& params = groups[g];
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
    if (watched_[w].source != nullptr)
      plan->shards = watched_[w].source->shards(watched_[w].params);
    find_local_parts(watched_[w], !plan->shards.empty());
    watched_[w].plan = std::move(plan);
  }
}

const std::vector<at::Tensor>& ModelWatch::params(int optimizer) const noexcept {
  return watched_[static_cast<std::size_t>(optimizer)].params;
}

void ModelWatch::find_local_parts(Watched& watched, bool is_sharded) {
  watched.is_sharded = is_sharded;
  watched.local_params.clear();
  watched.local_gradients.assign(is_sharded ? watched.params.size() : 0, at::Tensor());
  if (!is_sharded) return;
  for (const at::Tensor& param : watched.params)
    watched.local_params.push_back(watched.source->local_part(param));
}

const std::vector<at::Tensor>& ModelWatch::local_params(int optimizer) const noexcept {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  return watched.is_sharded ? watched.local_params : watched.params;
}

const at::Tensor& ModelWatch::gradient(int optimizer, std::size_t entry) const noexcept {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  return watched.is_sharded ? watched.local_gradients[entry] : watched.params[entry].grad();
}

at::Tensor ModelWatch::gradient_now(int optimizer, std::size_t entry) const noexcept try {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  const at::Tensor& gradient = watched.params[entry].grad();
  return watched.is_sharded ? watched.source->local_part(gradient) : gradient;
} catch (...) {  // a tensor of a kind that nobody knows
  return {};
}

void ModelWatch::look_at_gradients(int optimizer) noexcept {
  Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  for (std::size_t i = 0; i < watched.local_gradients.size(); ++i)
    watched.local_gradients[i] = gradient_now(optimizer, i);
}

void ModelWatch::let_go_of_gradients(int optimizer) noexcept {
  for (at::Tensor& gradient : watched_[static_cast<std::size_t>(optimizer)].local_gradients)
    gradient.reset();
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
  return watched.source == nullptr ? 0 : watched.source->steps_done();
}

int ModelWatch::learning_rates(int optimizer, double* out, int room) const noexcept {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  return watched.source == nullptr ? 0 : watched.source->learning_rates(out, room);
}

}  // namespace gradvane::collectors
