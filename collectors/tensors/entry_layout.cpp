#include "collectors/tensors/entry_layout.hpp"

#include "collectors/tensors/tensor_view.hpp"

namespace gradvane::collectors {

ExpectedEntry expected_entry(const at::Tensor& param) noexcept try {
  ExpectedEntry expected;
  if (!param.defined() || !param.is_cuda() || param.layout() != at::kStrided) return expected;
  const auto dtype = pass_dtype(param.scalar_type());
  if (!dtype) return expected;
  expected.layout = {{param.numel() * (param.is_complex() ? 2 : 1), *dtype},
                     memory_order_of(param)};
  expected.trains = param.requires_grad();
  expected.device = static_cast<int>(param.get_device());
  return expected;
} catch (...) {  // a tensor of a kind that has no sizes, or no memory for them
  return {};
}

}  // namespace gradvane::collectors
