#include "kernels/cpu_pass.hpp"

#include <cassert>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "kernels/cpu_part.hpp"
#include "kernels/element.hpp"
#include "kernels/float_environment.hpp"

namespace gradvane::kernels {
namespace {

const ReadPartTable& table_of(CpuPath path) noexcept {
  switch (path) {
    case CpuPath::avx512:
      return kAvx512ReadPart;
    case CpuPath::avx2:
      return kAvx2ReadPart;
    case CpuPath::scalar:
      break;
  }
  return kScalarReadPart;
}

bool processor_has(CpuPath path) noexcept {
#if defined(__x86_64__)
  // The builtins also ask whether the system saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (path == CpuPath::avx2) return avx2;
  if (path == CpuPath::avx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return path == CpuPath::scalar;
}

double magnitude_of(std::uint64_t bits, DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return value<DType::f64>(bits);
    case DType::f32:
      return value<DType::f32>(static_cast<std::uint32_t>(bits));
    case DType::f16:
      return value<DType::f16>(static_cast<std::uint16_t>(bits));
    case DType::bf16:
      return value<DType::bf16>(static_cast<std::uint16_t>(bits));
  }
  return 0;
}

void finish_part(PartTotals& totals, const TensorPart& part, TensorStats& stats) noexcept {
  for (int width = kPartLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) {
      totals.sum[lane] += totals.sum[lane + width];
      totals.sum_abs[lane] += totals.sum_abs[lane + width];
      totals.sum_sq[lane] += totals.sum_sq[lane + width];
    }
  }
  stats = TensorStats{};
  stats.numel = part.end - part.begin;
  stats.nan = totals.nan;
  stats.pos_inf = totals.pos_inf;
  stats.neg_inf = totals.neg_inf;
  stats.zero = totals.zero;
  stats.subnormal = totals.subnormal;
  stats.sum = totals.sum[0];
  stats.sum_abs = totals.sum_abs[0];
  stats.sum_sq = totals.sum_sq[0];
  if (totals.abs_max_bits != 0) {
    stats.abs_max = magnitude_of(totals.abs_max_bits, part.dtype);
    stats.abs_min_nonzero = magnitude_of(totals.abs_min_bits, part.dtype);
  }
  if (totals.first_nonfinite >= 0) {
    stats.first_nonfinite = part.begin + totals.first_nonfinite;
    stats.first_kind = static_cast<std::int16_t>(totals.first_kind);
  }
  stats.scale_exp = totals.scale_exp;
}

}  // namespace

bool supported(CpuPath path) noexcept {
  return processor_has(path) && table_of(path).read[0] != nullptr;
}

CpuPath best_cpu_path() noexcept {
  for (const CpuPath path : {CpuPath::avx512, CpuPath::avx2}) {
    if (supported(path)) return path;
  }
  return CpuPath::scalar;
}

std::string_view name(CpuPath path) noexcept {
  switch (path) {
    case CpuPath::scalar:
      return "scalar";
    case CpuPath::avx2:
      return "avx2";
    case CpuPath::avx512:
      return "avx512";
  }
  return "?";
}

CpuPass::CpuPass(const ChunkPlan& plan, CpuPath path)
    : plan_(plan),
      path_(path),
      table_(&table_of(path)),
      whole_(plan.tensors().size()),
      partials_(static_cast<std::size_t>(plan.blocks())) {
  if (!supported(path)) {
    throw std::invalid_argument("CpuPass: this processor or build has no path " +
                                std::string(name(path)));
  }
}

void CpuPass::run_blocks(std::span<const void* const> data, int begin, int end) noexcept {
  assert(data.size() == whole_.size());
  const DefaultFloatEnvironment environment;
  for (int block = begin; block < end; ++block) {
    plan_.view().for_each_part(block, [&](const TensorPart& part) {
      const auto tensor = static_cast<std::size_t>(part.tensor);
      TensorStats& to = part.whole() ? whole_[tensor]
                                     : partials_[static_cast<std::size_t>(block)]
                                                [static_cast<std::size_t>(part.partial())];
      if (data[tensor] == nullptr) {
        to = TensorStats{};
        return;
      }
      const auto* start =
          static_cast<const std::byte*>(data[tensor]) + part.begin * size_in_bytes(part.dtype);
      PartTotals totals;
      table_->read[static_cast<int>(part.dtype)](start, part.end - part.begin, totals);
      finish_part(totals, part, to);
    });
  }
}

void CpuPass::finish(std::span<TensorStats> out) noexcept {
  assert(out.size() == whole_.size());
  const DefaultFloatEnvironment environment;
  // What no block touches has no elements: whole_ holds it as it was made.
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = whole_[i];
  for (int block = 0; block < blocks(); ++block) {
    plan_.view().for_each_part(block, [&](const TensorPart& part) {
      if (part.whole()) return;
      const TensorStats& partial =
          partials_[static_cast<std::size_t>(block)][static_cast<std::size_t>(part.partial())];
      TensorStats& to = out[static_cast<std::size_t>(part.tensor)];
      if (part.begin == 0) {
        to = partial;
      } else {
        merge(to, partial);
      }
    });
  }
}

std::int64_t CpuPass::memory_bytes() const noexcept {
  return static_cast<std::int64_t>(whole_.capacity() * sizeof(whole_[0]) +
                                   partials_.capacity() * sizeof(partials_[0]));
}

}  // namespace gradvane::kernels
