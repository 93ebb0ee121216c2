#include "agent/step/reads/own_gradients.hpp"

#include <algorithm>

namespace gradvane::agent {

using collectors::EntryTag;

void OwnGradients::note(const collectors::Tensor& param, std::int64_t element) noexcept {
  const collectors::ModelWatch& watch = optimizers_.watch();
  const void* wanted = collectors::identity_of(param);
  for (int optimizer = 0; optimizer < watch.optimizers(); ++optimizer) {
    if (watch.is_removed(optimizer)) continue;
    const auto& all = watch.params(optimizer);
    const auto found = std::ranges::find(all, wanted, collectors::identity_of);
    if (found == all.end()) continue;
    keep_first(optimizer, {static_cast<std::int32_t>(found - all.begin()), element});
  }
}

void OwnGradients::look() noexcept try {
  if (!looks_ || !optimizers_.is_enabled()) return;
  optimizers_.catch_up();
  const collectors::ModelWatch& watch = optimizers_.watch();
  readers_.resize(static_cast<std::size_t>(watch.optimizers()));
  for (int optimizer = 0; optimizer < watch.optimizers(); ++optimizer) {
    if (watch.is_removed(optimizer)) continue;
    optimizers_.at(optimizer).own_bad.reset();  // it may be of gradients that were dropped since
    const std::vector<collectors::Tensor>& params = watch.params(optimizer);
    collectors::CpuReader& reader = readers_[static_cast<std::size_t>(optimizer)];
    if (reader.stats().size() != params.size()) reader.resize(params.size());
    std::vector<collectors::Tensor> gradients;  // the reader takes their addresses
    gradients.reserve(params.size());
    for (std::size_t i = 0; i < params.size(); ++i) {
      gradients.push_back(collectors::gradient_of(params[i]));
      reader.set(i, gradients[i], gradients[i].defined() ? EntryTag::read : EntryTag::missing);
    }
    if (!reader.read()) continue;
    const auto bad = std::ranges::find_if(
        reader.stats(), [](const kernels::TensorStats& one) { return one.nonfinite() > 0; });
    if (bad != reader.stats().end())
      keep_first(optimizer,
                 {static_cast<std::int32_t>(bad - reader.stats().begin()), bad->first_nonfinite});
  }
} catch (...) {  // no memory: nothing was seen
}

void OwnGradients::keep_first(int optimizer, const ranks::BadElement& found) noexcept {
  auto& first = optimizers_.at(optimizer).own_bad;
  first = std::min(first.value_or(found), found);
}

}  // namespace gradvane::agent
