#include "agent/step/gradient_clip.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace gradvane::agent {
namespace {

/// Dense tensors of one device and type: torch's foreach operators take such a list in few
/// launches. Lists of mixed types take one launch for each tensor.
using Group = std::vector<at::Tensor>;

void add_to(std::vector<Group>& groups, const at::Tensor& tensor) {
  const auto found = std::ranges::find_if(groups, [&tensor](const Group& group) {
    return group.front().device() == tensor.device() &&
           group.front().scalar_type() == tensor.scalar_type();
  });
  if (found != groups.end())
    found->push_back(tensor);
  else
    groups.push_back({tensor});
}

/// One norm for each tensor of the group, as one vector.
at::Tensor norms_of(const Group& group) {
  const at::Tensor& first = group.front();
  // 16-bit norms would be rounded to 16 bits. On CPUs sums in fp64 cost little.
  const bool in_double = first.is_cpu() || first.scalar_type() == at::kDouble;
  if (first.is_complex()) return at::stack(at::_foreach_norm(group)).to(at::kDouble);
  const at::ScalarType type = in_double ? at::kDouble : at::kFloat;
  return at::stack(at::_foreach_norm(group, 2, type)).to(at::kDouble);
}

}  // namespace

void scale_gradients(const std::vector<at::Tensor>& gradients, double coefficient) {
  if (coefficient == 1) return;
  const c10::AutoGradMode off(false);
  Group dense;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.is_sparse())
      gradient.mul_(coefficient);
    else
      dense.push_back(gradient);
  }
  if (!dense.empty()) at::_foreach_mul_(dense, coefficient);
}

at::Tensor norm_with_torch(const std::vector<at::Tensor>& gradients) {
  const c10::AutoGradMode off(false);
  if (gradients.empty()) return at::zeros({}, at::kDouble);
  std::vector<Group> groups;
  for (const at::Tensor& gradient : gradients)
    add_to(groups, gradient.is_sparse() ? gradient.coalesce()._values() : gradient);
  const at::Device first = gradients.front().device();
  std::vector<at::Tensor> norms;
  norms.reserve(groups.size());
  for (const Group& group : groups)
    norms.push_back(at::linalg_vector_norm(norms_of(group)).to(first, /*non_blocking=*/true));
  return norms.size() == 1 ? norms.front() : at::linalg_vector_norm(at::stack(norms));
}

void clip_to_norm(const std::vector<at::Tensor>& gradients, const at::Tensor& norm,
                  double max_norm) {
  const c10::AutoGradMode off(false);
  const at::Tensor coefficient = norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  const auto coefficient_for = [&coefficient](const at::Tensor& gradient) {
    return coefficient.to(gradient.device(), gradient.scalar_type(), /*non_blocking=*/true);
  };
  std::vector<Group> groups;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.is_sparse())
      gradient.mul_(coefficient_for(gradient));
    else
      add_to(groups, gradient);
  }
  for (const Group& group : groups) at::_foreach_mul_(group, coefficient_for(group.front()));
}

void note_written(const std::vector<at::Tensor>& gradients) {
  for (const at::Tensor& gradient : gradients)
    if (!gradient.is_inference()) gradient.unsafeGetTensorImpl()->bump_version();
}

at::Tensor in_norm_type(const at::Tensor& norm, const std::vector<at::Tensor>& parameters) {
  at::ScalarType type = at::ScalarType::Undefined;
  for (const at::Tensor& param : parameters) {
    if (!param.grad().defined()) continue;
    const at::ScalarType own = c10::toRealValueType(param.grad().scalar_type());
    type = type == at::ScalarType::Undefined ? own : c10::promoteTypes(type, own);
  }
  return norm.to(type == at::ScalarType::Undefined ? c10::get_default_dtype_as_scalartype() : type);
}

at::Tensor scalar_tensor(double value) { return at::scalar_tensor(value, at::kDouble); }

}  // namespace gradvane::agent
