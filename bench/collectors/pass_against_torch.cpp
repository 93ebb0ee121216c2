// The read of all gradients as the agent does it, against what torch offers for the same numbers and
// against a bare norm, in one process and interleaved. Prints one JSON object a line.
//
//   gradvane     all statistics of every tensor
//   plain_norm   one L2 norm of all bytes, AVX, no care for anything: the floor
//   foreach_norm at::_foreach_norm: one number a tensor
//   eager        isnan().any(), isinf().any(), norm(), abs().max(), (== 0).sum() a tensor: four of our
//                statistics and two flags
#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/collectors/allocation_counter.hpp"
#include "bench/collectors/shapes.hpp"
#include "bench/kernels/plain_norm.hpp"
#include "collectors/tensors/cpu_reader.hpp"
#include "kernels/cpu_pass.hpp"

namespace gradvane::bench {
namespace {

struct Contender {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {};
  std::int64_t bytes = 0;  ///< allocated in one run
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

volatile double sink = 0;  // results must be wanted, or they are not computed

void plain_norm(const std::vector<at::Tensor>& tensors) {
  constexpr std::int64_t kPiece = 1 << 20;
  struct Piece {
    const char* data;
    std::int64_t bytes;
  };
  static std::vector<Piece> pieces;
  pieces.clear();
  for (const at::Tensor& tensor : tensors) {
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    for (std::int64_t at = 0; at < bytes; at += kPiece)
      pieces.push_back({data + at, std::min(kPiece, bytes - at)});
  }
  static std::vector<double> sums;
  sums.assign(pieces.size(), 0);
  const kernels::CpuPath path = kernels::best_cpu_path();
  at::parallel_for(
      0, static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
          sums[i] =
              plain_sum_of_squares(pieces[i].data, pieces[i].bytes, kernels::DType::f32, path);
      });
  double sum = 0;
  for (const double part : sums) sum += part;
  sink = sum;
}

void eager(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const bool bad = at::isnan(tensor).any().item<bool>() || at::isinf(tensor).any().item<bool>();
    const double norm = at::linalg_vector_norm(tensor).item<double>();
    const double most = at::abs(tensor).max().item<double>();
    const double zeros = at::eq(tensor, 0).sum().item<double>();
    sink = norm + most + zeros + (bad ? 1 : 0);
  }
}

void measure(const ModelShapes& shapes, int threads, int rounds) {
  at::set_num_threads(threads);
  std::vector<at::Tensor> tensors;
  for (const Shape& shape : shapes.params) tensors.push_back(at::randn(shape));
  collectors::CpuReader reader;
  reader.resize(tensors.size());

  std::vector<Contender> contenders;
  contenders.push_back({"gradvane", [&] {
                          for (std::size_t i = 0; i < tensors.size(); ++i)
                            reader.set(i, tensors[i], collectors::EntryTag::read);
                          reader.read();
                          sink = reader.stats().front().sum_sq;
                        }});
  contenders.push_back({"plain_norm", [&] { plain_norm(tensors); }});
  contenders.push_back({"foreach_norm", [&] {
                          const auto norms = at::_foreach_norm(tensors, 2);
                          sink = norms.back().item<double>();
                        }});
  contenders.push_back({"eager", [&] { eager(tensors); }});

  for (Contender& contender : contenders) contender.run();  // warm up, and build the plan
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      const std::int64_t allocated = bytes_allocated();
      const auto begin = std::chrono::steady_clock::now();
      contender.run();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      contender.bytes = bytes_allocated() - allocated;
      contender.seconds.push_back(time.count());
    }
  }
  const double ours = median(contenders.front().seconds);
  for (const Contender& contender : contenders) {
    const double seconds = median(contender.seconds);
    std::printf(
        "{\"shapes\":\"%s\",\"tensors\":%zu,\"numel\":%lld,\"threads\":%d,\"contender\":\"%s\","
        "\"seconds\":%.9g,\"min_seconds\":%.9g,\"max_seconds\":%.9g,\"rounds\":%d,"
        "\"gigabytes_per_second\":%.6g,\"gradvane_over_this\":%.6g,\"bytes_allocated\":%lld,"
        "\"cpu_path\":\"%s\"}\n",
        shapes.name.c_str(), tensors.size(), static_cast<long long>(shapes.numel()), threads,
        contender.name.c_str(), seconds,
        *std::min_element(contender.seconds.begin(), contender.seconds.end()),
        *std::max_element(contender.seconds.begin(), contender.seconds.end()), rounds,
        4e-9 * static_cast<double>(shapes.numel()) / seconds, ours / seconds,
        static_cast<long long>(contender.bytes),
        std::string(kernels::name(kernels::best_cpu_path())).c_str());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace gradvane::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  const c10::AutoGradMode off(false);
  const int all = at::get_num_threads();
  for (const auto& shapes : {gradvane::bench::gpt2_124m(), gradvane::bench::resnet50(),
                             gradvane::bench::tiny_tensors()}) {
    gradvane::bench::measure(shapes, 1, rounds);
    if (all > 1) gradvane::bench::measure(shapes, all, rounds);
  }
  return 0;
}
