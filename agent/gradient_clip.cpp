#include "agent/gradient_clip.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

namespace gradvane::agent {

void scale_gradients(const std::vector<at::Tensor>& gradients, double coefficient) {
  if (coefficient == 1) return;
  const c10::AutoGradMode off(false);
  for (const at::Tensor& gradient : gradients) gradient.mul_(coefficient);
}

at::Tensor clip_with_torch(const std::vector<at::Tensor>& gradients, double max_norm) {
  const c10::AutoGradMode off(false);
  if (gradients.empty()) return at::zeros({}, at::kDouble);
  const at::Device first = gradients.front().device();
  std::vector<at::Tensor> norms;
  norms.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor values = gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
    norms.push_back(at::linalg_vector_norm(values, 2, c10::nullopt, false, at::kDouble)
                        .to(first, /*non_blocking=*/true));
  }
  const at::Tensor norm = at::linalg_vector_norm(at::stack(norms));
  const at::Tensor coefficient = norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  for (const at::Tensor& gradient : gradients)
    gradient.mul_(coefficient.to(gradient.device(), gradient.scalar_type(), /*non_blocking=*/true));
  return norm;
}

at::Tensor clip_on_device(const std::vector<at::Tensor>& gradients, const at::Tensor& norm,
                          double max_norm) {
  const c10::AutoGradMode off(false);
  const at::Tensor coefficient =
      norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0).to(at::kFloat);
  at::_foreach_mul_(gradients, coefficient);
  return norm.clone();
}

at::Tensor scalar_tensor(double value) { return at::scalar_tensor(value, at::kDouble); }

}  // namespace gradvane::agent
