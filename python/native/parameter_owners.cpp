#include "python/native/parameter_owners.hpp"

#include <algorithm>
#include <cstddef>
#include <unordered_set>

namespace gradvane::python {

ParameterOwners::Owners ParameterOwners::of(const std::vector<const void*>& params,
                                            agent::StepRecorder& recorder) {
  if (last_owner_ >= 0 && last_params_ == params) return {{last_owner_}, true};
  recorder.catch_up();
  Owners owners;
  const std::unordered_set<const void*> given(params.begin(), params.end());
  bool all = true;         // of the parameters with a gradient are given
  bool really_all = true;  // also of those without
  std::size_t owned = 0;
  for (int o = 0; o < recorder.optimizers(); ++o) {
    if (recorder.is_detached(o)) continue;
    std::vector<const collectors::Tensor*> others;
    for (const collectors::Tensor& param : recorder.params(o))
      if (!given.contains(collectors::identity_of(param))) others.push_back(&param);
    const std::size_t found = recorder.params(o).size() - others.size();
    if (found == 0) continue;  // perhaps another thread's, which writes to its gradients
    owned += found;
    owners.optimizers.push_back(o);
    really_all = really_all && others.empty();
    all = all && std::ranges::none_of(others, [](const collectors::Tensor* param) {
            return collectors::requires_grad(*param) &&
                   collectors::gradient_identity_of(*param) != nullptr;
          });
  }
  // One read does not say the norm over two optimizers' parameters, over others too, or over one
  // twice.
  owners.is_whole = all && owners.optimizers.size() == 1 && owned == given.size() &&
                    given.size() == params.size();
  last_owner_ = owners.is_whole && really_all ? owners.optimizers.front() : -1;
  last_params_ = params;
  return owners;
}

std::vector<int> ParameterOwners::of_gradients(const std::vector<const void*>& gradients,
                                               const agent::StepRecorder& recorder) {
  const std::unordered_set<const void*> given(gradients.begin(), gradients.end());
  std::vector<int> owners;
  for (int o = 0; o < recorder.optimizers(); ++o) {
    if (recorder.is_detached(o)) continue;
    const std::vector<collectors::Tensor>& params = recorder.params(o);
    if (std::any_of(params.begin(), params.end(), [&](const collectors::Tensor& param) {
          return given.contains(collectors::gradient_identity_of(param));
        }))
      owners.push_back(o);
  }
  return owners;
}

}  // namespace gradvane::python
