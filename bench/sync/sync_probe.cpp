// Asks the real CUPTI and CUDA what the ledger's design takes for granted, and prints what was seen: one line
// each, beginning with the question's name in docs/internals/sync-ledger.md.
//
//   sync_probe [--quick] [--cupti PATH] [V1 V3 ...]
//
// Every probe is a process of its own, so that one that dies or hangs costs nobody else an answer. Exit code:
// 0 if all came to their end, 1 if one did not, 77 without a device.
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/sync/raw_cupti.hpp"

namespace {

using namespace gradvane::bench;

constexpr int kNoDevice = 77;
constexpr unsigned kSeconds = 60;

struct Probe {
  const char* name;
  void (*run)(bool quick);
};
constexpr Probe kProbes[] = {
    {"V1", &probe_nesting},     {"V3", &probe_cost},
    {"V4", &probe_finalize},    {"V4", &probe_finalize_at_exit},
    {"V5", &probe_copies},      {"V6", &probe_capture},
    {"V7", &probe_synchronize}, {"V8", &probe_owner},
    {"V9", &probe_releases},    {"V11", &probe_first_subscription},
};

/// Runs it in a child, so that this process never touches CUDA. Returns the status of waitpid.
template <typename Work>
int in_child(Work work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSeconds);
    const int code = work();
    std::fflush(nullptr);
    // Handlers at exit are not what is asked about.
    ::_exit(code);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0) return -1;
  return status;
}

int check_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return 0;
  std::fprintf(stderr, "sync_probe: no CUDA device: %s\n", cudaGetErrorString(error));
  return kNoDevice;
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  std::string path = GRADVANE_LIBCUPTI;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0)
      quick = true;
    else if (std::strcmp(argv[i], "--cupti") == 0 && i + 1 < argc)
      path = argv[++i];
    else
      wanted.emplace_back(argv[i]);
  }
  for (const std::string& name : wanted) {
    if (std::ranges::any_of(kProbes, [&](const Probe& probe) { return name == probe.name; }))
      continue;
    std::fprintf(stderr, "sync_probe: there is no probe %s\n", name.c_str());
    return 2;
  }
  RawCupti::set_path(path);
  if (const int status = in_child(&check_device); status != 0)
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  bool all_ended = true;
  for (const Probe& probe : kProbes) {
    if (!wanted.empty() && std::ranges::find(wanted, probe.name) == wanted.end()) continue;
    const int status = in_child([&] {
      probe.run(quick);
      return 0;
    });
    if (status == 0) continue;
    all_ended = false;
    if (WIFSIGNALED(status))
      say(probe.name, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
      say(probe.name, "ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return all_ended ? 0 : 1;
}
