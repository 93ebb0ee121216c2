// V3: what a call costs with nobody subscribed, with a subscription that asks for nothing, for the ledger's
// calls, and with the ledger itself; and a step of small kernels, launched one by one and as a graph.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bench/sync/delay.hpp"
#include "bench/sync/raw_cupti.hpp"
#include "collectors/sync_ledger/cupti_ledger.hpp"

namespace gradvane::bench {
namespace {

constexpr int kKernels = 100;  ///< of a step

/// How to be while the work is timed.
struct Arm {
  const char* name;
  std::function<void()> begin;
  std::function<void()> end;
};

struct Work {
  const char* name;
  int calls;  ///< of one time
  std::function<void()> run;
  std::function<void()> after;  ///< not timed
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::vector<Arm> arms() {
  static std::unique_ptr<Listener> listener;
  static auto* const kLedger = new collectors::CuptiLedger();  // never destroyed, as in life
  const auto end = [] { listener.reset(); };
  const auto deaf = [] {
    listener = std::make_unique<Listener>();
    listener->seen = {};  // keeps nothing: the callback alone
  };
  return {{"nobody", [] {}, [] {}},
          {"0 ids", deaf, end},
          {"without copies", [deaf] { deaf(), listener->hear_ledgers(false); }, end},
          {"all ids", [deaf] { deaf(), listener->hear_ledgers(true); }, end},
          {"ledger", [] { kLedger->join({}); }, [] { kLedger->leave(); }}};
}

/// The fastest of a few, per call.
double nanoseconds_per_call(const Work& work) {
  double best = 1e30;
  for (int i = 0; i < 20; ++i) {
    const double took = milliseconds_of(work.run);
    work.after();
    best = std::min(best, 1e6 * took / work.calls);
  }
  return best;
}

}  // namespace

void probe_cost(bool quick) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* device = nullptr;
  void* pinned = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  (void)cudaMalloc(&device, 4096);
  (void)cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault);
  const auto launch = [&] {
    for (int i = 0; i < kKernels; ++i) (void)enqueue_nothing(stream);
  };
  const auto fetch = [&] {
    (void)cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDeviceToHost, stream);
  };
  const auto wait = [&] { (void)cudaStreamSynchronize(stream); };
  launch();
  wait();
  (void)cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  launch();
  (void)cudaStreamEndCapture(stream, &graph);
  (void)cudaGraphInstantiate(&executable, graph, 0);

  const auto times = [](int count, auto call) {
    return [count, call] {
      for (int i = 0; i < count; ++i) call();
    };
  };
  const std::vector<Work> all{
      {"cudaStreamSynchronize", 1000, times(1000, wait), [] {}},
      {"cudaEventQuery", 1000, times(1000, [&] { (void)cudaEventQuery(event); }), [] {}},
      {"cudaMemcpyAsync", 64, times(64, fetch), wait},
      {"a launch", kKernels, launch, wait},
      {"a step of 100 launches and a read", 1, [&] { launch(), fetch(), wait(); }, [] {}},
      {"the same as a graph", 1,
       [&] { (void)cudaGraphLaunch(executable, stream), fetch(), wait(); }, [] {}},
  };
  // Once before anybody ever subscribed: what a subscription leaves behind would be missed otherwise.
  for (const Work& work : all)
    say("V3", "%s: before the first subscription %.0f ns", work.name, nanoseconds_per_call(work));
  const std::vector<Arm> every = arms();
  for (const Work& work : all) {
    std::vector<std::vector<double>> found(every.size());
    for (int round = 0; round < (quick ? 5 : 15); ++round) {
      for (std::size_t i = 0; i < every.size(); ++i) {
        every[i].begin();
        found[i].push_back(nanoseconds_per_call(work));
        every[i].end();
      }
    }
    std::string text;
    for (std::size_t i = 0; i < every.size(); ++i)
      text += (i == 0 ? "" : ", ") + std::string(every[i].name) + ' ' +
              std::to_string(static_cast<long>(median(found[i]))) + " ns";
    say("V3", "%s: %s", work.name, text.c_str());
  }
}

}  // namespace gradvane::bench
