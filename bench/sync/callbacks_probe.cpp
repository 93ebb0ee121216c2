// V1: which callbacks one call raises. V7: what the SYNCHRONIZE domain says of the same calls. V8: who has
// the subscription. V11: what subscribing first of all does to the driver.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/sync/delay.hpp"
#include "bench/sync/raw_cupti.hpp"

// What a program compiled for streams of its threads calls.
// NOLINTNEXTLINE(readability-identifier-naming): CUDA's own
extern "C" cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream);

namespace gradvane::bench {
namespace {

struct Case {
  const char* name;
  std::function<void()> call;
};

/// Everything that calls need. It lives as long as the process.
struct Things {
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* device = nullptr;
  void* other = nullptr;
  void* pinned = nullptr;
  std::vector<std::byte> pageable = std::vector<std::byte>(kBytes);
  void* made = nullptr;
  cudaGraphExec_t graph = nullptr;
  CUcontext context = nullptr;

  Things() {
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    (void)cudaMalloc(&device, kBytes);
    (void)cudaMalloc(&other, kBytes);
    (void)cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault);
    cudaGraph_t whole = nullptr;
    (void)enqueue_nothing(stream);
    (void)cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    (void)enqueue_nothing(stream);
    (void)cudaStreamEndCapture(stream, &whole);
    (void)cudaGraphInstantiate(&graph, whole, 0);
    if (const auto current =
            reinterpret_cast<PFN_cuCtxGetCurrent_v4000>(driver_function("cuCtxGetCurrent")))
      (void)current(&context);
    (void)cudaDeviceSynchronize();
  }
};

std::vector<Case> cases(Things& t) {
  const auto copy = [](void* to, const void* from, cudaMemcpyKind kind) {
    return [to, from, kind] { (void)cudaMemcpy(to, from, 4096, kind); };
  };
  const auto copy_async = [&t](void* to, const void* from, cudaMemcpyKind kind) {
    return [&t, to, from, kind] { (void)cudaMemcpyAsync(to, from, 4096, kind, t.stream); };
  };
  std::vector<Case> all{
      {"cudaDeviceSynchronize", [] { (void)cudaDeviceSynchronize(); }},
      {"cudaStreamSynchronize", [&t] { (void)cudaStreamSynchronize(t.stream); }},
      {"cudaStreamSynchronize of the legacy stream",
       [] { (void)cudaStreamSynchronize(cudaStreamLegacy); }},
      {"cudaStreamSynchronize of the thread's stream",
       [] { (void)cudaStreamSynchronize(cudaStreamPerThread); }},
      {"cudaStreamSynchronize_ptsz", [] { (void)cudaStreamSynchronize_ptsz(nullptr); }},
      {"cudaEventSynchronize", [&t] { (void)cudaEventSynchronize(t.event); }},
      {"cudaStreamQuery", [&t] { (void)cudaStreamQuery(t.stream); }},
      {"cudaEventQuery", [&t] { (void)cudaEventQuery(t.event); }},
      {"cudaMemcpy h2d", copy(t.device, t.pageable.data(), cudaMemcpyHostToDevice)},
      {"cudaMemcpy d2h", copy(t.pageable.data(), t.device, cudaMemcpyDeviceToHost)},
      {"cudaMemcpy d2h pinned", copy(t.pinned, t.device, cudaMemcpyDeviceToHost)},
      {"cudaMemcpy d2d", copy(t.other, t.device, cudaMemcpyDeviceToDevice)},
      {"cudaMemcpy default", copy(t.other, t.device, cudaMemcpyDefault)},
      {"cudaMemcpyAsync h2d", copy_async(t.device, t.pageable.data(), cudaMemcpyHostToDevice)},
      {"cudaMemcpyAsync d2h", copy_async(t.pageable.data(), t.device, cudaMemcpyDeviceToHost)},
      {"cudaMemcpyAsync d2h pinned", copy_async(t.pinned, t.device, cudaMemcpyDeviceToHost)},
      {"cudaMemset", [&t] { (void)cudaMemset(t.device, 0, 4096); }},
      {"cudaMalloc", [&t] { (void)cudaMalloc(&t.made, Things::kBytes); }},
      {"cudaFree", [&t] { (void)cudaFree(t.made); }},
      {"cudaMallocHost", [&t] { (void)cudaMallocHost(&t.made, Things::kBytes); }},
      {"cudaFreeHost", [&t] { (void)cudaFreeHost(t.made); }},
      {"cudaGraphLaunch", [&t] { (void)cudaGraphLaunch(t.graph, t.stream); }},
      {"a launch", [&t] { (void)enqueue_nothing(t.stream); }},
  };
  if (const auto wait =
          reinterpret_cast<PFN_cuStreamSynchronize_v2000>(driver_function("cuStreamSynchronize")))
    all.push_back({"cuStreamSynchronize", [&t, wait] { (void)wait(t.stream); }});
  if (const auto wait =
          reinterpret_cast<PFN_cuCtxSynchronize_v2000>(driver_function("cuCtxSynchronize")))
    all.push_back({"cuCtxSynchronize", [wait] { (void)wait(); }});
  if (const auto wait =
          reinterpret_cast<PFN_cuCtxSynchronize_v13000>(driver_function("cuCtxSynchronize", 13000)))
    all.push_back({"cuCtxSynchronize of 13.0", [&t, wait] { (void)wait(t.context); }});
  return all;
}

const char* domain_name(cupti::Domain domain) {
  return domain == cupti::Domain::runtime ? "runtime" : "driver";
}

std::string story(const std::vector<Seen>& seen) {
  std::string text;
  int depth = 0;
  std::uint32_t outermost = 0;
  for (const Seen& one : seen) {
    if (one.site == cupti::Site::exit) {
      depth = std::max(0, depth - 1);
      continue;
    }
    if (!text.empty()) text += ", ";
    text += std::string(domain_name(one.domain)) + (depth == 0 ? " enter " : " nested ") + one.name;
    if (depth == 0) outermost = one.correlation;
    if (depth > 0)
      text += one.correlation == outermost ? ", same correlation id" : ", other correlation id";
    ++depth;
  }
  if (depth != 0) text += ", and not every exit";
  return text.empty() ? "no callback" : text;
}

}  // namespace

void probe_nesting(bool /*quick*/) {
  Things things;
  const std::vector<Case> all = cases(things);
  Listener listener;
  listener.hear_all(cupti::Domain::runtime);
  listener.hear_all(cupti::Domain::driver);
  if (listener.enabled() != 2) return say("V1", "the domains could not be enabled");
  for (const Case& one : all) {
    (void)cudaDeviceSynchronize();
    listener.seen.clear();
    one.call();
    const std::vector<Seen> seen = listener.seen;
    say("V1", "%s: %s", one.name, story(seen).c_str());
  }
}

void probe_synchronize(bool /*quick*/) {
  Things things;
  const std::vector<Case> all = cases(things);
  Listener listener;
  listener.hear_all(kSynchronizeDomain);
  listener.hear_ledgers(true);
  for (const Case& one : all) {
    (void)cudaDeviceSynchronize();
    listener.seen.clear();
    one.call();
    int streams = 0;
    int contexts = 0;
    int outermost = 0;
    int depth = 0;
    for (const Seen& each : listener.seen) {
      if (each.domain == kSynchronizeDomain) {
        streams += each.id == 1;
        contexts += each.id == 2;
      } else if (each.site == cupti::Site::enter) {
        outermost += depth++ == 0;
      } else {
        --depth;
      }
    }
    say("V7", "%s: SYNCHRONIZE says %d stream, %d context; outermost calls of ours: %d", one.name,
        streams, contexts, outermost);
  }
}

void probe_owner(bool /*quick*/) {
  const Listener listener;
  const RawCupti& cupti = RawCupti::instance();
  std::uint32_t version = 0;
  (void)cupti.functions->get_version(&version);
  say("V8", "CUPTI %u, subscribing: %s, owner '%s'", version, cupti.word(listener.result()).c_str(),
      listener.owner());
}

// An injected library is called by the driver as it is initialised: on a thread that is subscribing just
// then, if subscribing does that.
void probe_first_subscription(bool /*quick*/) {
  const auto initialised = [] {
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) return std::string("the driver is not loaded");
    const auto count = reinterpret_cast<CUresult (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
    int devices = 0;
    if (count == nullptr) return std::string("the driver has no cuDeviceGetCount");
    return std::string(count(&devices) == CUDA_ERROR_NOT_INITIALIZED ? "the driver is loaded"
                                                                     : "the driver is initialised");
  };
  (void)RawCupti::instance();
  const std::string before = initialised();
  const Listener listener;
  say("V11", "before any CUDA call: %s; subscribing: %s; then: %s", before.c_str(),
      RawCupti::instance().word(listener.result()).c_str(), initialised().c_str());
}

}  // namespace gradvane::bench
