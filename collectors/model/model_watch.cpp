#include "collectors/model/model_watch.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "collectors/grouping.hpp"
#include "collectors/tensors/device_identity.hpp"
#include "record/step_record.hpp"

namespace gradvane::collectors {
namespace {

std::vector<const void*> identities(const std::vector<std::vector<Tensor>>& groups) {
  std::vector<const void*> all;
  for (const auto& group : groups)
    for (const Tensor& param : group) all.push_back(identity_of(param));
  return all;
}

record::ParamInfo describe(const Tensor& tensor, std::vector<std::string> names) {
  record::ParamInfo info;
  info.name = std::move(names.front());
  info.aliases.assign(names.begin() + 1, names.end());
  info.shape = sizes_of(tensor);
  info.numel = 1;
  for (const std::int64_t size : info.shape) info.numel *= size;
  info.dtype = dtype_name(tensor);
  info.device = device_name(tensor);
  info.requires_grad = requires_grad(tensor);
  return info;
}

/// .to() keeps the tensor and changes what it holds. A parameter that thaws is news; one that is frozen
/// for a while, as adversarial training does every step, is not.
bool is_other(const Tensor& tensor, const record::ParamInfo& info) {
  return !is_of(tensor, info.dtype, info.device, info.shape) ||
         (!info.requires_grad && requires_grad(tensor));
}

/// Of an optimizer that has no parameters yet, or none any more.
std::shared_ptr<const ReadPlan> empty_plan() {
  static const auto kEmpty = std::make_shared<const ReadPlan>(
      ReadPlan{.model = std::make_shared<const record::ModelInfo>(),
               .params = {},
               .note = {},
               .shards = {}});
  return kEmpty;
}

}  // namespace

ModelWatch::ModelWatch(std::string group_rule, int max_groups)
    : group_rule_(std::move(group_rule)), max_groups_(max_groups) {}

int ModelWatch::add(std::unique_ptr<ModelSource> source) {
  const int index = add_later(std::move(source));
  rebuild();
  return index;
}

int ModelWatch::add_later(std::unique_ptr<ModelSource> source) {
  if (source->optimizer_key() != nullptr && find(source->optimizer_key()) >= 0)
    throw std::invalid_argument("attach: this optimizer is attached already");
  source->read_device_state();
  Watched watched;
  watched.type = source->optimizer_type();
  watched.source = std::move(source);
  watched.plan = empty_plan();
  watched_.push_back(std::move(watched));
  ++live_;
  return optimizers() - 1;
}

void ModelWatch::remove(int optimizer) noexcept {
  Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  if (watched.source != nullptr) --live_;
  watched.source.reset();
  watched.identity.clear();
  watched.params.clear();
  watched.local_params.clear();
  watched.gradients.clear();
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

bool ModelWatch::differs(int optimizer) const noexcept {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  const ReadPlan& plan = *watched.plan;
  for (std::size_t i = 0; i < watched.params.size(); ++i)
    if (is_other(watched.params[i], plan.model->params[static_cast<std::size_t>(plan.params[i])]))
      return true;
  return false;
}

bool ModelWatch::changed_anywhere() const {
  std::set<const void*> known(left_out_.begin(), left_out_.end());
  std::set<const void*> now;
  bool are_all_cheap = true;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Watched& watched = watched_[i];
    if (watched.source == nullptr) continue;
    if (differs(static_cast<int>(i)) || changed(static_cast<int>(i))) return true;
    for (const Tensor& param : watched.params) known.insert(identity_of(param));
    now.insert(watched.identity.begin(), watched.identity.end());
    if (!watched.source->names_are_cheap()) {  // what is new and trains, the optimizer shows
      are_all_cheap = false;
      for (const Tensor& param : watched.params) now.insert(identity_of(param));
    } else if (watched.is_first_of_names) {
      for (const auto& item : watched.source->named_parameters())
        now.insert(identity_of(item.tensor));
    }
  }
  if (!are_all_cheap) now.insert(left_out_.begin(), left_out_.end());
  return now != known;
}

void ModelWatch::note_first_of_names() {
  std::unordered_set<const void*> seen;
  for (Watched& watched : watched_)
    watched.is_first_of_names =
        watched.source != nullptr && seen.insert(watched.source->names_key()).second;
}

/// In module order, so that a reader finds what the module prints.
std::vector<ModelWatch::NamedTensor> ModelWatch::name_parameters() {
  note_first_of_names();
  std::vector<const ModelSource*> sources;
  for (const Watched& watched : watched_)
    if (watched.is_first_of_names) sources.push_back(watched.source.get());
  std::vector<NamedTensor> named;
  std::unordered_map<const void*, std::size_t> places;  // TensorImpl -> index in `named`
  for (std::size_t m = 0; m < sources.size(); ++m) {
    const std::string prefix = sources.size() > 1 ? "module" + std::to_string(m) + "." : "";
    for (const auto& item : sources[m]->named_parameters()) {
      const auto [place, is_new] = places.emplace(identity_of(item.tensor), named.size());
      if (is_new) named.push_back({item.tensor, {}, sources[m]->names_key()});
      named[place->second].names.push_back(prefix + item.name);
    }
  }
  return named;
}

std::vector<std::vector<std::size_t>> ModelWatch::divide(std::vector<NamedTensor>& named,
                                                         const std::vector<Found>& found) const {
  std::unordered_map<const void*, std::vector<std::size_t>> owners;  // TensorImpl -> optimizers
  std::unordered_map<const void*, std::size_t> first_of;             // names' key -> optimizer
  for (std::size_t w = 0; w < watched_.size(); ++w) {
    if (watched_[w].is_first_of_names) first_of[watched_[w].source->names_key()] = w;
    for (const void* id : found[w].identity) {
      std::vector<std::size_t>& of_this = owners[id];
      if (of_this.empty() || of_this.back() != w) of_this.push_back(w);
    }
  }
  std::vector<std::vector<std::size_t>> lists(watched_.size());
  for (std::size_t n = 0; n < named.size(); ++n) {
    if (const auto owner = owners.find(identity_of(named[n].tensor)); owner != owners.end()) {
      for (const std::size_t w : owner->second) lists[w].push_back(n);
      continue;
    }
    // What no optimizer owns is listed once, with its module's first one. What trains all the same is in
    // no plan: no step uses its gradient, and none clears it.
    const std::size_t w = first_of.at(named[n].key);
    const bool is_loop = watched_[w].source->optimizer_key() == nullptr;
    named[n].is_left_out = !is_loop && requires_grad(named[n].tensor);
    lists[w].push_back(n);
  }
  return lists;
}

void ModelWatch::list_parameters(std::vector<NamedTensor>& named, std::vector<Found>& found,
                                 record::ModelInfo& model,
                                 std::vector<const void*>& left_out) const {
  std::unordered_map<const void*, std::int32_t> index;  // TensorImpl -> ModelInfo::params
  const auto list = [&](const Tensor& tensor, const auto& names) {
    const auto [place, is_new] =
        index.emplace(identity_of(tensor), static_cast<std::int32_t>(model.params.size()));
    if (is_new) model.params.push_back(describe(tensor, names()));
    return place->second;
  };
  const auto plan = [&](std::size_t w, const Tensor& tensor, std::int32_t place) {
    found[w].params.push_back(tensor);
    found[w].entries.push_back(place);
  };
  std::unordered_set<const void*> has_name;
  for (const NamedTensor& one : named) has_name.insert(identity_of(one.tensor));
  const std::vector<std::vector<std::size_t>> lists = divide(named, found);
  for (std::size_t w = 0; w < watched_.size(); ++w) {
    model.optimizers.push_back(watched_[w].type);
    for (const std::size_t n : lists[w]) {
      const std::int32_t place = list(named[n].tensor, [&] { return named[n].names; });
      if (named[n].is_left_out)
        left_out.push_back(identity_of(named[n].tensor));
      else
        plan(w, named[n].tensor, place);
    }
    std::set<const void*> listed;
    const Groups& groups = found[w].groups;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::size_t k = 0; k < groups[g].size(); ++k) {
        const Tensor& param = groups[g][k];
        if (has_name.contains(identity_of(param)) || !listed.insert(identity_of(param)).second)
          continue;
        plan(w, param, list(param, [&] {
               return std::vector{"optimizer" + std::to_string(w) + ".group" + std::to_string(g) +
                                  "." + std::to_string(k)};
             }));
      }
    }
  }
}

void ModelWatch::rebuild() {
  std::vector<NamedTensor> named = name_parameters();
  std::vector<Found> found(watched_.size());
  for (std::size_t w = 0; w < watched_.size(); ++w) {
    if (watched_[w].source == nullptr) continue;
    found[w].groups = watched_[w].source->optimizer_parameters();
    found[w].identity = identities(found[w].groups);
  }
  auto model = std::make_shared<record::ModelInfo>();
  model->id = next_model_++;
  std::vector<const void*> left_out;
  list_parameters(named, found, *model, left_out);

  note_devices(*model);

  std::vector<std::string> flat;
  for (const record::ParamInfo& param : model->params) flat.push_back(param.name);
  Grouping grouping = group_parameters(flat, group_rule_, max_groups_);
  model->groups = std::move(grouping.names);
  for (std::size_t i = 0; i < model->params.size(); ++i)
    model->params[i].group = grouping.group_of[i];

  for (std::size_t w = 0; w < watched_.size(); ++w) {
    if (watched_[w].source == nullptr) continue;
    const ModelSource& source = *watched_[w].source;
    const std::vector<Tensor>& params = found[w].params;
    auto plan = std::make_shared<ReadPlan>();
    plan->id = next_plan_++;
    plan->optimizer = static_cast<std::int32_t>(w);
    plan->model = model;
    plan->params = std::move(found[w].entries);
    plan->note = grouping.note;
    plan->shards = source.shards(params);
    found[w].gradients.assign(params.size(), Tensor());
    if (!plan->shards.empty())
      for (const Tensor& param : params) found[w].local_params.push_back(source.local_part(param));
    found[w].plan = std::move(plan);
  }

  const auto none = empty_plan();

  // Nothing throws from here on: lists that are of two states would be read beyond their end.
  left_out_.swap(left_out);
  for (std::size_t w = 0; w < watched_.size(); ++w) {
    Watched& watched = watched_[w];
    if (watched.source == nullptr) {
      watched.plan = none;
      continue;
    }
    watched.is_sharded = !found[w].plan->shards.empty();
    watched.identity.swap(found[w].identity);
    watched.params.swap(found[w].params);
    watched.local_params.swap(found[w].local_params);
    watched.gradients.swap(found[w].gradients);
    watched.plan = std::move(found[w].plan);
  }
}

void ModelWatch::note_devices(record::ModelInfo& model) {
  constexpr std::string_view kCuda = "cuda:";
  std::set<int> indices;
  for (const record::ParamInfo& param : model.params) {
    int index = -1;
    if (!param.device.starts_with(kCuda)) continue;
    const std::string_view digits = std::string_view(param.device).substr(kCuda.size());
    if (std::from_chars(digits.data(), digits.data() + digits.size(), index).ec == std::errc())
      indices.insert(index);
  }
  for (const int index : indices) {
    const auto [known, is_new] = devices_.try_emplace(index);
    if (is_new) known->second = device_info(index);
    if (known->second) model.devices.push_back(*known->second);
  }
}

const std::vector<Tensor>& ModelWatch::params(int optimizer) const noexcept {
  return watched_[static_cast<std::size_t>(optimizer)].params;
}

const std::vector<Tensor>& ModelWatch::local_params(int optimizer) const noexcept {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  return watched.is_sharded ? watched.local_params : watched.params;
}

const Tensor& ModelWatch::gradient(int optimizer, std::size_t entry) noexcept {
  static const Tensor kNone;
  auto& gradients = watched_[static_cast<std::size_t>(optimizer)].gradients;
  if (entry >= gradients.size()) return kNone;  // memory ran out when there were to be more
  return gradients[entry] = gradient_now(optimizer, entry);
}

Tensor ModelWatch::gradient_now(int optimizer, std::size_t entry) const noexcept try {
  const Watched& watched = watched_[static_cast<std::size_t>(optimizer)];
  if (entry >= watched.params.size()) return {};  // it is of lists that are gone
  Tensor gradient = gradient_of(watched.params[entry]);
  if (watched.is_sharded) return watched.source->local_part(gradient);
  return gradient;
} catch (...) {  // a tensor of a kind that nobody knows
  return {};
}

void ModelWatch::let_go_of_gradients(int optimizer) noexcept {
  reset_all(watched_[static_cast<std::size_t>(optimizer)].gradients);
}

std::shared_ptr<const ReadPlan> ModelWatch::plan(int optimizer) const noexcept {
  return watched_[static_cast<std::size_t>(optimizer)].plan;
}

std::string ModelWatch::param_name(int optimizer, std::int32_t entry) const {
  const auto of = plan(optimizer);
  const auto place = static_cast<std::size_t>(entry);
  if (of == nullptr || place >= of->params.size()) return {};
  return of->model->params.at(static_cast<std::size_t>(of->params[place])).name;
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
