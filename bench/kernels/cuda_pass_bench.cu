// The CUDA pass against a plain read of the same bytes and against four kernels a tensor. Each round
// times one of each, so that whatever else the machine does falls on all. Prints one JSON object a line.
//
//   roofline  adds all words: what reading costs (PlainRead)
//   gradvane  CudaPass::enqueue: all statistics of every tensor, into the ring
//   naive     non-finite elements, squares, largest magnitude, zeros: a kernel each (NaiveCheck)
//
// device_seconds is between two events, behind a kernel that keeps the device waiting until the host has
// enqueued all; host_bound says that it could not, so that the host's time is in it. Data rotates among
// buffers that together are larger than the L2 cache. A case whose results are wrong has no times.
//
//   cuda_pass_bench --shape gpt2_124m --dtype bf16,f32
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/kernels/cuda_baselines.hpp"
#include "bench/kernels/cuda_bench_cases.hpp"
#include "bench/kernels/cuda_bench_data.hpp"
#include "bench/kernels/cuda_bench_tensors.hpp"
#include "kernels/device/cuda_pass.hpp"
#include "kernels/result_ring.hpp"

namespace gradvane::bench {
namespace {

using kernels::check_cuda;
using kernels::CudaPass;
using kernels::Site;
using kernels::TensorStats;

constexpr int kExitNoDevice = 77;  // what ctest and automake take for "skipped"
constexpr int kMinRounds = 7;
constexpr int kMaxRounds = 61;
constexpr double kLongestHold = 5e-3;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Contender {
  std::string name;
  int launches = 0;
  std::int64_t device_bytes = 0;  ///< beside the tensors
  std::int64_t host_bytes = 0;    ///< page-locked
  std::function<void(std::size_t copy)> enqueue;
  std::vector<double> device = {};  ///< seconds
  std::vector<double> host = {};
  bool host_bound = false;
};

/// The value at `share` of the way through the sorted ones.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(share * double(values.size() - 1)))];
}
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    check_cuda("cudaEventCreate", cudaEventCreate(&start_));
    check_cuda("cudaEventCreate", cudaEventCreate(&stop_));
  }
  ~Stopwatch() {
    (void)cudaEventDestroy(start_);
    (void)cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;  // owns the events
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// One run, with the stream idle before it.
  void time(Contender& contender, std::size_t copy) {
    check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream_));
    const double usual = contender.host.empty() ? 1e-3 : median(contender.host);
    const double held = std::min(kLongestHold, 20e-6 + 2 * usual);
    hold(held, stream_);
    check_cuda("cudaEventRecord", cudaEventRecord(start_, stream_));
    const auto begin = Clock::now();
    contender.enqueue(copy);
    const double host = seconds_since(begin);
    check_cuda("cudaEventRecord", cudaEventRecord(stop_, stream_));
    check_cuda("cudaEventSynchronize", cudaEventSynchronize(stop_));
    float milliseconds = 0;
    check_cuda("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, start_, stop_));
    contender.device.push_back(1e-3 * milliseconds);
    contender.host.push_back(host);
    contender.host_bound = median(contender.host) > 0.8 * held;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

std::vector<kernels::TensorShape> shapes_of(const Case& which) {
  std::vector<kernels::TensorShape> shapes;
  for (const std::int64_t numel : which.numels) shapes.push_back({numel, which.dtype});
  return shapes;
}

class CaseRun {
 public:
  CaseRun(const Case& which, int device, cudaStream_t stream)
      : case_(which),
        stream_(stream),
        pattern_(which.dtype, which.data),
        tensors_(which, pattern_, device, stream),
        sites_(which.numels.size(), Site::grad),
        pass_(device, shapes_of(which), sites_, 4, 1),
        plain_(device),
        naive_(device, which) {}

  /// Throws std::runtime_error where a result is wrong.
  void verify() {
    Expectation expectation(case_, pattern_);
    for (const Injection& each : injections(case_)) {
      expectation.inject(pattern_, each);
      tensors_.write(each.tensor, each.index, bits_of(each.kind, case_.dtype));
    }
    check_results(expectation, true);
    for (const Injection& each : injections(case_)) {
      tensors_.write(each.tensor, each.index,
                     pattern_.bits(Pattern::start(each.tensor) + each.index));
    }
    check_results(Expectation(case_, pattern_), false);
    if (!plain_.correct(tensors_.memory(0), case_.bytes(), stream_)) {
      throw std::runtime_error("roofline: it does not read every word");
    }
  }

  void measure(double seconds) {
    std::vector<Contender> contenders{
        {"roofline", 1, plain_.extra_bytes(), 0,
         [this](std::size_t copy) {
           plain_.enqueue(tensors_.memory(copy), case_.bytes(), stream_);
         }},
        {"gradvane", pass_.launches(), std::int64_t(pass_.device_bytes()),
         std::int64_t(pass_.ring_bytes()),
         [this](std::size_t copy) {
           check_cuda("CudaPass::enqueue", pass_.enqueue(tensors_.of(copy), copy, stream_));
         }},
        {"naive", naive_.launches(), naive_.extra_bytes(), 0,
         [this](std::size_t copy) { naive_.enqueue(tensors_.of(copy), stream_); }}};
    if (case_.data == Data::all_nan) tensors_.fill_with_nan();
    if (case_.data == Data::half_nan) tensors_.fill_with_nan(1, 2);
    if (case_.data == Data::nan_rows) tensors_.fill_with_nan(kSparseRow, 2 * kSparseRow);
    Stopwatch watch(stream_);
    tune(watch, contenders.front());
    time_all(watch, contenders, seconds);
    // The timed reads were of these tensors, too.
    if (case_.data == Data::all_nan)
      check_all_nan();
    else if (case_.data == Data::half_nan || case_.data == Data::nan_rows)
      check_half_nan();
    else
      check_pass(Expectation(case_, pattern_), false);
    for (const Contender& contender : contenders) print(contender, contenders[1]);
    if (case_.data == Data::uniform) measure_clip(watch, seconds);
  }

  /// By the norm of the last read, again and again: a coefficient near 1, so that numbers stay normal; and 1. Changes
  /// the tensors.
  void measure_clip(Stopwatch& watch, double seconds) {
    double norm = 0;
    check_cuda("cudaMemcpy",
               cudaMemcpy(&norm, pass_.gradient_norm(), sizeof(norm), cudaMemcpyDeviceToHost));
    const auto clip_to = [this](double max_norm) {
      return [this, max_norm](std::size_t copy) {
        std::vector<void*> data;
        for (const void* tensor : tensors_.of(copy)) data.push_back(const_cast<void*>(tensor));
        bool has_begun = false;
        check_cuda("CudaPass::clip", pass_.clip(data, max_norm, stream_, has_begun));
      };
    };
    std::vector<Contender> contenders{
        {"clip", pass_.launches(), 0, 0, clip_to(0.996 * norm)},
        {"clip_not_needed", pass_.launches(), 0, 0, clip_to(2 * norm)}};
    time_all(watch, contenders, seconds);
    for (const Contender& contender : contenders) print(contender, contenders[0]);
  }

 private:
  void time_all(Stopwatch& watch, std::vector<Contender>& contenders, double seconds) {
    // Warm up: clocks, the instruction cache, the guess at what the host needs.
    run_rounds(watch, contenders, 0.1 * seconds, 2);
    for (Contender& contender : contenders) {
      contender.device.clear();
      contender.host = {contender.host.back()};
    }
    run_rounds(watch, contenders, seconds, kMinRounds);
  }
  void run_rounds(Stopwatch& watch, std::vector<Contender>& contenders, double seconds, int least) {
    const auto start = Clock::now();
    for (int round = 0; round < kMaxRounds; ++round) {
      if (round >= least && seconds_since(start) > seconds) break;
      for (Contender& contender : contenders) watch.time(contender, next_copy());
    }
  }

  std::size_t next_copy() { return copy_++ % tensors_.copies(); }

  /// The roofline is the best of what a plain read can do here.
  void tune(Stopwatch& watch, Contender& plain) {
    double best = 0;
    int blocks = plain_.blocks();
    for (const int each : PlainRead::kBlocksToTry) {
      plain_.set_blocks(each);
      plain.device.clear();
      for (int i = 0; i < 5; ++i) watch.time(plain, next_copy());
      if (best == 0 || median(plain.device) < best) {
        best = median(plain.device);
        blocks = each;
      }
    }
    plain_.set_blocks(blocks);
    plain.device.clear();
  }

  void check_results(const Expectation& expected, bool injected) {
    check_cuda("CudaPass::enqueue", pass_.enqueue(tensors_.of(0), 0, stream_));
    check_pass(expected, injected);
    naive_.enqueue(tensors_.of(0), stream_);
    const auto found = naive_.results(stream_);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const TensorStats& want = expected.tensors[i];
      const bool extremes_known = !expected.injected[i];
      const auto nonfinite = static_cast<std::int64_t>(found[i].nonfinite);
      const auto zero = static_cast<std::int64_t>(found[i].zero);
      float abs_max = 0;
      static_assert(sizeof(abs_max) == sizeof(found[i].abs_max));
      std::copy_n(reinterpret_cast<const char*>(&found[i].abs_max), sizeof(abs_max),
                  reinterpret_cast<char*>(&abs_max));
      if (nonfinite != want.nonfinite() || zero != want.zero ||
          (extremes_known &&
           (double{abs_max} != want.abs_max || !close(found[i].sum_sq, want.sum_sq, 1e-3)))) {
        throw std::runtime_error("naive: tensor " + std::to_string(i) + " is wrong");
      }
    }
  }

  /// The last read, as the ring holds it.
  std::vector<TensorStats> latest(kernels::SlotHeader& header) {
    check_cuda("CudaPass::wait", pass_.wait(stream_));
    std::vector<TensorStats> stats;
    const kernels::RingReader reader(pass_.ring());
    if (reader.read(pass_.ring().latest(), header, stats) != kernels::ReadStatus::ok ||
        stats.size() != case_.numels.size()) {
      throw std::runtime_error("gradvane: the ring holds no whole read");
    }
    return stats;
  }

  void check_all_nan() {
    kernels::SlotHeader header;
    for (const TensorStats& stats : latest(header))
      if (stats.nan != stats.numel || stats.first_nonfinite != 0 || stats.sum_sq != 0)
        throw std::runtime_error("gradvane: a tensor that is all NaN is wrong");
  }

  /// But for a row at either end.
  void check_half_nan() {
    kernels::SlotHeader header;
    for (const TensorStats& stats : latest(header))
      if (std::abs(2 * stats.nan - stats.numel) > 2 * kSparseRow || !std::isfinite(stats.sum_sq) ||
          (stats.numel > 2 * kSparseRow && stats.sum_sq == 0))
        throw std::runtime_error("gradvane: a tensor that is half NaN is wrong");
  }

  /// The last read: in the ring, and what it left on the device.
  void check_pass(const Expectation& expected, bool injected) {
    kernels::SlotHeader header;
    const std::vector<TensorStats> stats = latest(header);
    for (std::size_t i = 0; i < stats.size(); ++i) {
      const std::string difference = expected.difference(i, stats[i]);
      if (!difference.empty()) throw std::runtime_error("gradvane: " + difference);
    }
    // All reads together: those of the one with injections.
    const auto grad = static_cast<int>(Site::grad);
    const std::int64_t* elements = header.totals.elements[grad];
    if (elements[0] != 2 || elements[1] != 1 || elements[2] != 1 ||
        header.totals.reads[grad] != 1) {
      throw std::runtime_error("gradvane: the running totals are wrong");
    }
    double norm = 0;
    float nonfinite = 0;
    check_cuda("cudaMemcpy",
               cudaMemcpy(&norm, pass_.gradient_norm(), sizeof(norm), cudaMemcpyDeviceToHost));
    check_cuda("cudaMemcpy", cudaMemcpy(&nonfinite, pass_.found_nonfinite(), sizeof(nonfinite),
                                        cudaMemcpyDeviceToHost));
    if (injected ? nonfinite != 1 || !std::isnan(norm)
                 : nonfinite != 0 || !close(norm, expected.norm(), 1e-5)) {
      throw std::runtime_error("gradvane: the norm on the device is wrong");
    }
  }

  void print(const Contender& contender, const Contender& ours) const {
    const double device = median(contender.device);
    std::printf(
        "{\"bench\":\"cuda_pass\",%s,\"contender\":\"%s\",\"device_seconds\":%.9g,"
        "\"device_p10\":%.9g,\"device_p90\":%.9g,\"host_seconds\":%.9g,\"host_bound\":%s,"
        "\"rounds\":%zu,\"gigabytes_per_second\":%.6g,\"gradvane_over_this\":%.6g,"
        "\"launches\":%d,\"extra_device_bytes\":%lld,\"extra_host_bytes\":%lld,"
        "\"buffers\":%zu,\"roofline_blocks\":%d,\"verified\":true}\n",
        case_.json().c_str(), contender.name.c_str(), device, quantile(contender.device, 0.1),
        quantile(contender.device, 0.9), median(contender.host),
        contender.host_bound ? "true" : "false", contender.device.size(),
        1e-9 * static_cast<double>(case_.bytes()) / device, median(ours.device) / device,
        contender.launches, static_cast<long long>(contender.device_bytes),
        static_cast<long long>(contender.host_bytes), tensors_.copies(), plain_.blocks());
    std::fflush(stdout);
  }

  const Case& case_;
  cudaStream_t stream_;
  Pattern pattern_;
  BenchTensors tensors_;
  std::vector<Site> sites_;
  CudaPass pass_;
  PlainRead plain_;
  NaiveCheck naive_;
  std::size_t copy_ = 0;
};

/// False where the pass or a baseline is wrong.
bool run(const Case& which, const BenchOptions& options, cudaStream_t stream) {
  try {
    CaseRun run(which, options.device, stream);
    run.verify();
    run.measure(options.seconds);
  } catch (const NotEnoughMemory& error) {
    std::printf("{\"bench\":\"cuda_pass\",%s,\"skipped\":\"%s\"}\n", which.json().c_str(),
                error.what());
  } catch (const kernels::CudaError&) {
    throw;  // the device may be lost: nothing after it would mean anything
  } catch (const std::runtime_error& error) {
    std::printf("{\"bench\":\"cuda_pass\",%s,\"verified\":false,\"error\":\"%s\"}\n",
                which.json().c_str(), error.what());
    std::fprintf(stderr, "cuda_pass_bench: %s: %s\n", which.json().c_str(), error.what());
    return false;
  }
  return true;
}

int run_all(const BenchOptions& options) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || options.device >= devices) {
    std::fprintf(stderr, "cuda_pass_bench: no CUDA device %d here (%s)\n", options.device,
                 error == cudaSuccess ? "there are fewer" : cudaGetErrorString(error));
    return kExitNoDevice;
  }
  check_cuda("cudaSetDevice", cudaSetDevice(options.device));
  cudaStream_t stream = nullptr;
  check_cuda("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int wrong = 0;
  for (const Case& which : options.cases) wrong += run(which, options, stream) ? 0 : 1;
  check_cuda("cudaStreamDestroy", cudaStreamDestroy(stream));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gradvane::bench

int main(int argc, char** argv) {
  try {
    const auto options = gradvane::bench::parse_options({argv + 1, argv + argc});
    if (options.help) {
      std::fputs(gradvane::bench::usage().c_str(), stdout);
      return 0;
    }
    if (options.list) {
      for (const auto& which : options.cases) std::puts(gradvane::bench::describe(which).c_str());
      return 0;
    }
    return gradvane::bench::run_all(options);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "cuda_pass_bench: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_pass_bench: %s\n", error.what());
    return 1;
  }
}
