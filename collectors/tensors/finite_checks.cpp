#include "collectors/tensors/finite_checks.hpp"

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
#include <optional>
#include <tuple>
#include <utility>

namespace gradvane::collectors {
namespace {

constexpr std::size_t kPack = 1024;  ///< answers that are put together while a step lasts

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

}  // namespace

std::int32_t FiniteChecks::add(const at::Tensor& tensor) noexcept try {
  const OwnCalls own(ledger_);
  const c10::impl::ExcludeDispatchKeyGuard straight(kLayers);
  const auto range = range_of(tensor);
  if (!range) return -1;
  const auto& [smallest, largest] = *range;
  const c10::Device device = smallest.device();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const at::ScalarType type = smallest.scalar_type();
  const std::lock_guard lock(mutex_);
  auto same = std::find_if(asked_.begin(), asked_.end(), [&](const Asked& one) {
    return one.stream == stream && one.type == type;
  });
  if (same == asked_.end())  // few: one for each type on each device, as a rule
    same = asked_.insert(asked_.end(), {stream, type, {}, {}, {}});
  same->loose.push_back(smallest);
  same->loose.push_back(largest);
  same->indices.push_back(questions_);
  const std::int32_t index = questions_++;
  if (same->indices.size() % kPack == 0) pack(*same);
  return index;
} catch (...) {  // a dtype or device that cannot, no memory: not known
  return -1;
}

/// An answer by itself takes the smallest block that a device's allocator has.
void FiniteChecks::pack(Asked& asked) {
  if (asked.loose.empty()) return;
  asked.packed.push_back(at::stack(asked.loose).to(at::kDouble));
  asked.loose.clear();
}

std::size_t FiniteChecks::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(questions_);
}

FiniteChecks::Answers FiniteChecks::take() {
  const OwnCalls own(ledger_);
  const c10::impl::ExcludeDispatchKeyGuard straight(kLayers);
  std::vector<Asked> asked;
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    asked.swap(asked_);
    answers.of.assign(static_cast<std::size_t>(std::exchange(questions_, 0)), Finiteness::unknown);
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].indices.empty()) continue;  // fetched with others of its stream
    if (!asked[i].stream.device().is_cpu()) ++answers.host_syncs;
    try {
      fetch(asked, i, answers.of);
    } catch (...) {  // the device is lost: these stay unknown
    }
  }
  return answers;
}

/// All on the stream of asked[first], with one host sync where the device is one that is waited for.
void FiniteChecks::fetch(std::vector<Asked>& asked, std::size_t first,
                         std::vector<Finiteness>& into) {
  const c10::StreamGuard behind_the_questions(asked[first].stream);
  std::vector<at::Tensor> packed;
  std::vector<std::int32_t> indices;
  for (Asked& one : asked) {
    if (one.stream != asked[first].stream) continue;
    pack(one);
    packed.insert(packed.end(), one.packed.begin(), one.packed.end());
    indices.insert(indices.end(), one.indices.begin(), one.indices.end());
    one.indices.clear();
  }
  const at::Tensor answers = at::cat(packed).to(at::kCPU);
  const double* range = answers.const_data_ptr<double>();
  for (const std::int32_t index : indices) {
    into[static_cast<std::size_t>(index)] = judged(range[0], range[1]);
    range += 2;
  }
}

}  // namespace gradvane::collectors
