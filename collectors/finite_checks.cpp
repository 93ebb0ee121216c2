#include "collectors/finite_checks.hpp"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

namespace gradvane::collectors {
namespace {

/// What stands between a call and the kernel: graphs, casts, and whatever a program puts there.
const c10::DispatchKeySet kLayers =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
    c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                         c10::DispatchKey::PythonDispatcher, c10::DispatchKey::Tracer});

/// The tensor that holds the values; undefined where there is none that could be read.
at::Tensor values_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.key_set().has(c10::DispatchKey::Python) || tensor.is_meta() ||
      tensor.is_quantized() || tensor.is_nested() || tensor.is_mkldnn())
    return {};
  if (tensor.layout() == c10::kSparse) return tensor._values();
  if (tensor.is_sparse_csr()) return tensor.values();
  return tensor.layout() == c10::kStrided && tensor.has_storage() ? tensor : at::Tensor();
}

/// The same elements, each at least once, in one stretch of memory if that takes no copy.
at::Tensor flat(at::Tensor values) {
  for (std::int64_t d = 0; d < values.dim(); ++d)
    if (values.stride(d) == 0 && values.size(d) > 1) values = values.narrow(d, 0, 1);
  return values.is_non_overlapping_and_dense() ? values.as_strided({values.numel()}, {1}) : values;
}

/// The smallest and the largest element: both NaN where there is one, and infinite where that is all.
std::optional<std::tuple<at::Tensor, at::Tensor>> range_of(const at::Tensor& tensor) {
  at::Tensor values = values_of(tensor);
  if (!values.defined() || values.numel() == 0) return std::nullopt;
  if (values.is_complex())
    values = at::view_as_real(values.is_conj() ? values.conj() : values);
  else if (!values.is_floating_point())
    return std::nullopt;
  values = flat(std::move(values));
  return at::aminmax(c10::isFloat8Type(values.scalar_type()) ? values.to(at::kFloat) : values);
}

Finiteness judged(double smallest, double largest) {
  if (std::isnan(smallest) || std::isnan(largest)) return Finiteness::nan;
  if (std::isinf(largest) && largest > 0) return Finiteness::plus_infinity;
  return std::isinf(smallest) ? Finiteness::minus_infinity : Finiteness::finite;
}

/// What was asked on one stream, by the type of the answer.
struct Asked {
  std::vector<at::Tensor> ranges;  ///< smallest, largest, smallest, ...
  std::vector<std::size_t> indices;
};
using ByType = std::map<at::ScalarType, Asked>;

/// One host sync, where the device is one that is waited for.
void fetch(const c10::Stream& stream, const ByType& asked, std::vector<Finiteness>& into) {
  const c10::StreamGuard behind_the_questions(stream);
  std::vector<at::Tensor> stacked;
  stacked.reserve(asked.size());
  for (const auto& [type, one] : asked) stacked.push_back(at::stack(one.ranges).to(at::kDouble));
  const at::Tensor answers = at::cat(stacked).to(at::kCPU);
  const double* range = answers.const_data_ptr<double>();
  for (const auto& [type, one] : asked)
    for (const std::size_t index : one.indices) {
      into[index] = judged(range[0], range[1]);
      range += 2;
    }
}

}  // namespace

std::int32_t FiniteChecks::add(const at::Tensor& tensor) noexcept try {
  const OwnCalls own(ledger_);
  const c10::impl::ExcludeDispatchKeyGuard straight(kLayers);
  const auto range = range_of(tensor);
  if (!range) return -1;
  const auto& [smallest, largest] = *range;
  const c10::Device device = smallest.device();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const std::lock_guard lock(mutex_);
  questions_.push_back({smallest, largest, stream});
  return static_cast<std::int32_t>(questions_.size()) - 1;
} catch (...) {  // a dtype or device that cannot, no memory: not known
  return -1;
}

std::size_t FiniteChecks::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return questions_.size();
}

FiniteChecks::Answers FiniteChecks::take() {
  const OwnCalls own(ledger_);
  const c10::impl::ExcludeDispatchKeyGuard straight(kLayers);
  std::vector<Question> questions;
  {
    const std::lock_guard lock(mutex_);
    questions.swap(questions_);
  }
  Answers answers;
  answers.of.assign(questions.size(), Finiteness::unknown);
  std::vector<std::pair<c10::Stream, ByType>> asked;  // few: one a device, as a rule
  for (std::size_t i = 0; i < questions.size(); ++i) {
    auto& [smallest, largest, stream] = questions[i];
    auto on = std::find_if(asked.begin(), asked.end(),
                           [&](const auto& one) { return one.first == stream; });
    if (on == asked.end()) on = asked.emplace(asked.end(), stream, ByType{});
    Asked& same = on->second[smallest.scalar_type()];
    same.indices.push_back(i);
    same.ranges.push_back(std::move(smallest));
    same.ranges.push_back(std::move(largest));
  }
  for (const auto& [stream, by_type] : asked) {
    if (!stream.device().is_cpu()) ++answers.host_syncs;
    try {
      fetch(stream, by_type, answers.of);
    } catch (...) {  // the device is lost: these stay unknown
    }
  }
  return answers;
}

}  // namespace gradvane::collectors
