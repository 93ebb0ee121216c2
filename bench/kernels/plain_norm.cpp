#include "bench/kernels/plain_norm.hpp"

#if defined(__GNUC__) && !defined(__clang__)
// GCC before 13 makes its "undefined" vectors by reading themselves, and warns where that is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

namespace gradvane::bench {
namespace {

using kernels::CpuPath;
using kernels::DType;

#define GRADVANE_BENCH_AVX2 __attribute__((target("avx2,fma,f16c")))
#define GRADVANE_BENCH_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))

constexpr int kAccumulators = 8;

GRADVANE_BENCH_AVX2 double total(const __m256* sums) {
  double total = 0;
  for (int i = 0; i < kAccumulators; ++i) {
    for (int lane = 0; lane < 8; ++lane) total += static_cast<double>(sums[i][lane]);
  }
  return total;
}
GRADVANE_BENCH_AVX512 double total(const __m512* sums) {
  double total = 0;
  for (int i = 0; i < kAccumulators; ++i) {
    for (int lane = 0; lane < 16; ++lane) total += static_cast<double>(sums[i][lane]);
  }
  return total;
}

GRADVANE_BENCH_AVX2 double f32_avx2(const char* at, const char* end) {
  __m256 sums[kAccumulators] = {};
  for (; at != end; at += 256) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256 x = _mm256_loadu_ps(reinterpret_cast<const float*>(at + i * 32));
      sums[i] = _mm256_fmadd_ps(x, x, sums[i]);
    }
  }
  return total(sums);
}
GRADVANE_BENCH_AVX512 double f32_avx512(const char* at, const char* end) {
  __m512 sums[kAccumulators] = {};
  for (; at != end; at += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512 x = _mm512_loadu_ps(at + i * 64);
      sums[i] = _mm512_fmadd_ps(x, x, sums[i]);
    }
  }
  return total(sums);
}

GRADVANE_BENCH_AVX2 double f64_avx2(const char* at, const char* end) {
  __m256d sums[8] = {};
  for (; at != end; at += 256) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256d x = _mm256_loadu_pd(reinterpret_cast<const double*>(at + i * 32));
      sums[i] = _mm256_fmadd_pd(x, x, sums[i]);
    }
  }
  double total = 0;
  for (const auto& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
  return total;
}
GRADVANE_BENCH_AVX512 double f64_avx512(const char* at, const char* end) {
  __m512d sums[4] = {};
  for (; at != end; at += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512d x = _mm512_loadu_pd(at + i * 64);
      sums[i] = _mm512_fmadd_pd(x, x, sums[i]);
    }
  }
  double total = 0;
  for (const auto& sum : sums) total += _mm512_reduce_add_pd(sum);
  return total;
}

GRADVANE_BENCH_AVX2 double f16_avx2(const char* at, const char* end) {
  __m256 sums[kAccumulators] = {};
  for (; at != end; at += 256) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m256 x =
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + i * 16)));
      sums[i % 8] = _mm256_fmadd_ps(x, x, sums[i % 8]);
    }
  }
  return total(sums);
}
GRADVANE_BENCH_AVX512 double f16_avx512(const char* at, const char* end) {
  __m512 sums[kAccumulators] = {};
  for (; at != end; at += 256) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m512 x =
          _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at + i * 32)));
      sums[i] = _mm512_fmadd_ps(x, x, sums[i]);
    }
  }
  return total(sums);
}

GRADVANE_BENCH_AVX2 double bf16_avx2(const char* at, const char* end) {
  __m256 sums[kAccumulators] = {};
  const __m256i odd = _mm256_set1_epi32(-65536);
  for (; at != end; at += 256) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at + i * 32));
      const __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
      const __m256 b = _mm256_castsi256_ps(_mm256_and_si256(x, odd));
      sums[i % 4] = _mm256_fmadd_ps(a, a, sums[i % 4]);
      sums[i % 4 + 4] = _mm256_fmadd_ps(b, b, sums[i % 4 + 4]);
    }
  }
  return total(sums);
}
GRADVANE_BENCH_AVX512 double bf16_avx512(const char* at, const char* end) {
  __m512 sums[kAccumulators] = {};
  const __m512i odd = _mm512_set1_epi32(-65536);
  for (; at != end; at += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i x = _mm512_loadu_si512(at + i * 64);
      const __m512 a = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
      const __m512 b = _mm512_castsi512_ps(_mm512_and_si512(x, odd));
      sums[i] = _mm512_fmadd_ps(a, a, sums[i]);
      sums[i + 4] = _mm512_fmadd_ps(b, b, sums[i + 4]);
    }
  }
  return total(sums);
}

}  // namespace

double plain_sum_of_squares(const void* data, std::int64_t bytes, DType dtype,
                            CpuPath path) noexcept {
  const char* at = static_cast<const char*>(data);
  const char* end = at + bytes / 256 * 256;
  const bool wide = path == CpuPath::avx512;
  switch (dtype) {
    case DType::f32:
      return wide ? f32_avx512(at, end) : f32_avx2(at, end);
    case DType::f64:
      return wide ? f64_avx512(at, end) : f64_avx2(at, end);
    case DType::f16:
      return wide ? f16_avx512(at, end) : f16_avx2(at, end);
    case DType::bf16:
      return wide ? bf16_avx512(at, end) : bf16_avx2(at, end);
  }
  return 0;
}

}  // namespace gradvane::bench
