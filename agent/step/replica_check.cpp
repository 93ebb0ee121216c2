#include "agent/step/replica_check.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "collectors/tensors/tensor.hpp"
#include "record/checksum.hpp"

namespace gradvane::agent {
namespace {

/// Absent where they cannot be read.
std::optional<std::span<const std::byte>> bytes_of(const collectors::Tensor& tensor) noexcept {
  const collectors::TensorFacts facts = collectors::facts_of(tensor);
  if (facts.place != collectors::TensorFacts::Place::cpu || !facts.dtype || !facts.is_dense ||
      !facts.has_memory)
    return std::nullopt;
  const std::int64_t numbers = facts.is_complex ? 2 * facts.numel : facts.numel;
  return std::span(static_cast<const std::byte*>(facts.data),
                   static_cast<std::size_t>(numbers * kernels::size_in_bytes(*facts.dtype)));
}

std::optional<std::uint64_t> fingerprint(std::span<const collectors::Tensor> params) noexcept {
  std::uint64_t sum = 0;
  for (const collectors::Tensor& param : params) {
    const auto bytes = bytes_of(param);
    if (!bytes) return std::nullopt;
    sum = record::checksum(*bytes, sum);
  }
  return sum;
}

}  // namespace

void ReplicaCheck::add_fingerprint(int optimizer, ranks::RankRecord& record) noexcept {
  const std::span<const collectors::Tensor> params = optimizers_.watch().local_params(optimizer);
  record.params = static_cast<std::int32_t>(params.size());
  const auto wanted = replicas_.wanted(optimizer);
  const auto plan = optimizers_.watch().plan(optimizer);
  if (!wanted || plan == nullptr || !plan->shards.empty()) return;
  const auto begin = static_cast<std::size_t>(std::min(wanted->begin, record.params));
  const auto end = static_cast<std::size_t>(std::min(wanted->end, record.params));
  record.fingerprint = fingerprint(params.subspan(begin, end - begin));
}

void ReplicaCheck::compare(int optimizer, std::int64_t run_step,
                           std::span<const std::string> records) noexcept try {
  if (!replicas_.is_on()) return;
  std::vector<ranks::RankRecord> all;
  if (replicas_.wanted(optimizer))  // in all other steps it is enough to count them
    for (const std::string& bytes : records)
      if (const auto record = ranks::decode(bytes)) all.push_back(*record);
  auto found = replicas_.compare(optimizer, all);
  if (!found) return;
  governor_.note_comparison({.run_step = run_step,
                             .differ = found->differ,
                             .param = found->param
                                          ? optimizers_.watch().param_name(optimizer, *found->param)
                                          : std::string(),
                             .others = std::move(found->others),
                             .rank = found->rank,
                             .equal_at = found->equal_at});
} catch (...) {  // no memory: this comparison is not reported
}

}  // namespace gradvane::agent
