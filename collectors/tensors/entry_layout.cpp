#include "collectors/tensors/entry_layout.hpp"

#include "collectors/tensors/tensor_view.hpp"

namespace gradvane::collectors {

ExpectedEntry expected_entry(const Tensor& param) noexcept try {
  ExpectedEntry expected;
  const TensorFacts facts = facts_of(param);
  if (facts.place != TensorFacts::Place::cuda || facts.layout != TensorFacts::Layout::strided ||
      !facts.dtype)
    return expected;
  expected.layout = {{facts.numel * (facts.is_complex ? 2 : 1), *facts.dtype},
                     memory_order_of(facts)};
  expected.trains = requires_grad(param);
  expected.device = facts.device;
  return expected;
} catch (...) {  // a tensor of a kind that has no sizes, or no memory for them
  return {};
}

}  // namespace gradvane::collectors
