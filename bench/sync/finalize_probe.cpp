// V4: what is left of a subscription after somebody else's cuptiFinalize, called plainly and, as CUPTI's
// documentation has it, from a callback at the end of a call.
#include <cuda_runtime_api.h>

#include "bench/sync/raw_cupti.hpp"

namespace gradvane::bench {
namespace {

constexpr std::uint32_t kDeviceSynchronize = 165;

/// Callbacks that one wait for the device raises.
std::size_t heard(Listener& listener) {
  listener.seen.clear();
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) say("V4", "cudaDeviceSynchronize: %s", cudaGetErrorName(error));
  return listener.seen.size();
}

/// Callbacks that the ledger's sign of life raises.
std::size_t signs(Listener& listener) {
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(driver_function("cuDriverGetVersion"));
  listener.seen.clear();
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) say("V12", "cuDriverGetVersion fails");
  return listener.seen.size();
}

void look_at_the_rest(Listener& listener, const char* how) {
  const RawCupti& cupti = RawCupti::instance();
  say("V4", "%s: callbacks of a wait afterwards: %zu", how, heard(listener));
  say("V12", "%s: signs of life afterwards: %zu", how, signs(listener));
  std::uint32_t enabled = 99;
  const int state = cupti.get_callback_state(&enabled, listener.handle(), cupti::Domain::runtime,
                                             kDeviceSynchronize);
  say("V4", "%s: state of our handle: %s, enabled %u", how, cupti.word(state).c_str(), enabled);
  {
    Listener second;
    say("V4", "%s: subscribing anew: %s, owner '%s'", how, cupti.word(second.result()).c_str(),
        second.owner());
    second.hear_ledgers(true);
    say("V4", "%s: %d calls enabled, callbacks of a wait: %zu", how, second.enabled(),
        heard(second));
  }
  // Last, since nobody promises that a dead handle may be used.
  const int result = cupti.functions->unsubscribe(listener.handle());
  say("V4", "%s: unsubscribing the old handle: %s", how, cupti.word(result).c_str());
}

}  // namespace

void probe_finalize(bool /*quick*/) {
  (void)cudaFree(nullptr);
  auto& listener = *new Listener();  // its handle is used to the end
  listener.hear_ledgers(true);
  say("V4", "plainly: callbacks of a wait before: %zu", heard(listener));
  listener.hear_sign_of_life();
  say("V12", "plainly: signs of life before: %zu", signs(listener));
  const int result = RawCupti::instance().finalize();
  say("V4", "plainly: cuptiFinalize: %s", RawCupti::instance().word(result).c_str());
  look_at_the_rest(listener, "plainly");
}

void probe_finalize_at_exit(bool /*quick*/) {
  (void)cudaFree(nullptr);
  auto& listener = *new Listener();
  listener.hear_ledgers(true);
  bool is_done = false;
  int result = -1;
  listener.also = [&](const Seen& one) {
    if (is_done || one.site != cupti::Site::exit || one.domain != cupti::Domain::runtime) return;
    is_done = true;
    result = RawCupti::instance().finalize();
  };
  (void)heard(listener);
  say("V4", "in a callback: cuptiFinalize: %s", RawCupti::instance().word(result).c_str());
  look_at_the_rest(listener, "in a callback");
}

}  // namespace gradvane::bench
