#include "agent/public/option_table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "agent/public/option_kinds.hpp"
#include "agent/public/option_setters.hpp"
#include "record/rollback.hpp"

namespace gradvane::agent {
namespace {

constexpr std::array<std::string_view, 2> kModes{"lagged", "immediate"};
constexpr std::array<std::string_view, 3> kSyncs{"off", "auto", "require"};
constexpr std::array<std::string_view, 3> kRecorderSignals{"none", "usr1", "usr2"};
constexpr std::array<std::string_view, 2> kNormSharings{"auto", "off"};
constexpr std::array<std::string_view, 2> kRankAgreements{"off", "agree"};
constexpr std::array<std::string_view, 4> kGroupSeries{"auto", "all", "local0", "rank0"};
constexpr std::array<std::string_view, 3> kTraces{"off", "next_step", "always"};
constexpr std::array<std::string_view, 4> kProfilerRules{"auto", "gate", "yield", "share"};
constexpr std::array<std::string_view, 4> kNonfinitePolicies{"watch", "skip", "stop", "rollback"};
constexpr std::array<std::string_view, 3> kDivergencePolicies{"watch", "stop", "rollback"};

constexpr std::array kTable{
    on_off<&Options::enabled>(
        "enabled",
        "Off leaves the program as if Gradvane were not there. GRADVANE in the environment."),
    text<&Options::run>("run", "any text",
                        "Name of the run, on every series. Default: the program's name, with the "
                        "run_id if a run of that name is live on this machine."),
    text<&Options::run_id>("run_id", "any text",
                           "Tells apart the runs of one name. Default: what torchrun or Slurm "
                           "gives, else the time of the start. docs/prometheus.md."),
    text<&Options::config>("config", "path of a YAML file",
                           "Read before the environment. Keys are those of this table."),
    text<&Options::run_dir>("run_dir", "path of a directory",
                            "Holds endpoint files and recordings. Default: a folder under "
                            "gradvane-<uid> in the temporary directory. docs/run-directory.md."),
    OptionSpec{
        "address",
        "an IPv4 or IPv6 address, localhost, or unix:/path with a path of at most 100 bytes",
        "Where the endpoint listens. A unix socket is for this user alone. All but it and loopback "
        "need web_config, token or insecure.",
        set_address, [](const Options& o) { return o.address; }},
    OptionSpec{
        "token", "auto, or 16 to 128 letters, digits and - . _ ~",
        "What requests have to show, as `Authorization: Bearer ...`. auto: made once for each run "
        "directory, where `gradvane open` and Prometheus find it. Empty: nothing. docs/api.",
        set_token, [](const Options& o) { return o.token; }},
    text<&Options::web_config>("web_config", "path of a YAML file",
                               "TLS, users and a rate limit, as for Prometheus. docs/tls.md."),
    on_off<&Options::insecure>(
        "insecure", "Lets the endpoint listen on a network with neither, for all to read."),
    OptionSpec{
        "allowed_hosts", "host names with commas, without ports; *.name, or *",
        "More names by which requests may call the endpoint. It answers to IP addresses, localhost "
        "and, if not on loopback, this machine's names; there /metrics answers to every name. "
        "*.name: all below it. *: any, so web pages can read what a browser there can.",
        set_allowed_hosts, [](const Options& o) { return o.allowed_hosts; }},
    whole<&Options::port, -1, 65535>(
        "port", "-1 to 65535",
        "Port of the endpoint. Taken by another run: the next free one. 0: any. -1: no endpoint."),
    on_off<&Options::share_port>(
        "share_port",
        "The ranks of one machine have one port for all: one of them serves it, and another takes "
        "over if that one dies. Off: each has its own, port + LOCAL_RANK. docs/prometheus.md."),
    choice<&Options::mode, kModes>(
        "mode", "lagged, immediate",
        "Lagged waits for no device; immediate waits once per device and step, and step() "
        "returns the step's result. on_nonfinite waits in either mode."),
    whole<&Options::weight_every, 0, kMaxInt>("weight_every", "0 or more",
                                              "Weights are read at step 1, at multiples of this, "
                                              "and when a non-finite incident opens. 0: never."),
    whole<&Options::update_sample, 0, kMaxInt>("update_sample", "0 or more",
                                               "Elements per parameter kept for the update ratio, "
                                               "at most 65,536 in all. 0: no update ratio."),
    OptionSpec{
        "groups", "auto, depth:N with N >= 1, or name=regex;name=regex",
        "Which parameters share a series. auto: one group per layer, or finer, up to 50 groups.",
        set_groups, [](const Options& o) { return o.groups; }},
    whole<&Options::max_groups, 1, 1000>(
        "max_groups", "1 to 1000",
        "auto joins neighbouring layers if there are more. Any other "
        "rule puts the rest into the group \"other\"."),
    choice<&Options::group_series, kGroupSeries>(
        "group_series", "auto, all, local0, rank0",
        "Ranks that publish the gauges of groups in /metrics: all, one per node, or one. auto: "
        "all, "
        "unless that would make more than 50,000 series together; then rank 0. One is enough for "
        "replicas (DDP). The page, the API and counters have the groups of every rank."),
    whole<&Options::max_series, 100, kMaxInt>(
        "max_series", "100 or more",
        "Most series of this process; what is beyond is counted and not exported."),
    amount<&Options::vanishing_threshold>(
        "vanishing_threshold", "A parameter's gradient norm below it counts as vanishing."),
    amount<&Options::exploding_threshold>(
        "exploding_threshold",
        "A parameter's gradient norm above it counts as exploding, and so does a gradient that is "
        "not finite."),
    whole<&Options::ring_slots, 0, 65536>("ring_slots", "0 to 65536",
                                          "Reads the worker may lag behind before the oldest is "
                                          "dropped. 0: as many as fit in 1 MiB, from 64 to 1,024. "
                                          "Never more than fit in 64 MiB."),
    whole<&Options::history_steps, 1, 10'000'000>(
        "history_steps", "1 to 10000000", "Steps kept for /api/v1/steps, about 1.5 kB each."),
    text<&Options::step_log>(
        "step_log", "path of a file",
        "One JSON object a line for every optimizer step; .rank<R> is put before "
        "the suffix when the world is larger than one. Empty: none."),
    whole<&Options::step_log_max_bytes, std::int64_t{4096}, kMaxInt64>(
        "step_log_max_bytes", "4096 or more", "The step log is rotated at this size."),
    amount<&Options::stall_seconds>(
        "stall_seconds",
        "No step for this long, and for 20 median steps: the run counts as stalled. 0: never."),
    amount<&Options::stall_pause_seconds>(
        "stall_pause_seconds",
        "An evaluation or a checkpoint is no stall: it stops that clock, for at most this long. 0: "
        "it does not."),
    amount<&Options::linger_seconds>(
        "linger_seconds",
        "At the end of the process, wait this long for one more scrape, if there ever "
        "was one. Ctrl-C ends the wait."),
    amount<&Options::linger_incident_seconds>(
        "linger_incident_seconds",
        "The same where an incident is open, or opened since the last scrape, or the run failed."),
    on_off<&Options::expect_scraper>(
        "expect_scraper",
        "Wait for a scrape at the end even where there never was one: for runs that may die before "
        "the first."),
    whole<&Options::start_step, std::int64_t{0}, kMaxInt64>(
        "start_step", "0 or more",
        "Steps done before this process. 0: taken from the optimizer's state, where it has one."),
    whole<&Options::rank, -1, kMaxInt>("rank", "-1 or more", "-1: the launcher's, else 0."),
    whole<&Options::local_rank, -1, kMaxInt>("local_rank", "-1 or more",
                                             "-1: the launcher's, else 0."),
    whole<&Options::world_size, -1, kMaxInt>("world_size", "-1 or more",
                                             "-1: the launcher's, else 1."),
    amount<&Options::flops_per_token>(
        "flops_per_token",
        "FLOP that the model needs for a token, forward and backward: about 6 times its "
        "parameters. With peak_flops and counted tokens it gives "
        "gradvane_model_flops_utilization_ratio. 0: not known."),
    amount<&Options::peak_flops>(
        "peak_flops",
        "FLOP/s that the devices of this process can do at most, in the type that it computes "
        "with: 989e12 for the dense BF16 of one H100 SXM. 0: not known."),
    choice<&Options::sync, kSyncs>(
        "sync", "off, auto, require",
        "Whether calls that make the CPU wait for the GPU are counted, through CUPTI. auto: where "
        "they can be, from when the process uses CUDA; gradvane_sync_source_info says why not. "
        "require: the agent does not start without."),
    whole<&Options::sync_budget, -1, kMaxInt>("sync_budget", "-1 or more",
                                              "Most host syncs that the training may make per "
                                              "step. More is an incident, with the places. "
                                              "-1: any number."),
    whole<&Options::sync_budget_after, 0, kMaxInt>(
        "sync_budget_after", "0 or more",
        "Steps of this process to which the budget does not apply: they load code and fill "
        "caches."),
    whole<&Options::sync_threshold_us, 1, 1'000'000>(
        "sync_threshold_us", "1 to 1000000",
        "A call that only may wait (cudaMalloc, cudaFree, an asynchronous copy of pageable memory) "
        "counts as a host sync if it took this many microseconds or more."),
    choice<&Options::sync_profiler, kProfilerRules>(
        "sync_profiler", "auto, gate, yield, share",
        "PyTorch's profiler needs CUPTI, which has one subscriber. yield: the profiler gets it "
        "while it runs, and may keep it. gate: the profiler runs without, because "
        "KINETO_USE_DAEMON=1 was set before the program started; programs that use the profiler, "
        "and children that import torch, then end ten seconds later. share: CUPTI's own sharing, "
        "from 13.3 on, if every tool in the process supports it. auto: yield from Python; from "
        "C++, which does not see the profiler start, the subscription is kept."),
    text<&Options::sync_library>(
        "sync_library", "path of a libcupti",
        "Default: the one that the process has, else the one that the loader finds."),
    text<&Options::sync_report>(
        "sync_report", "path of a file or a directory",
        "What /api/v1/syncs says is written there every second and at the end; .rank<R> is put "
        "before the suffix when the world is larger than one. In a directory (one that exists, or "
        "a path that ends with /) each process writes syncs.<pid>.json. Empty: none."),
    OptionSpec{
        "detect",
        "classes of incidents, default, panic_v1, all, none, each with a - in front to leave it "
        "out",
        "What is judged, as a list with commas. default: all classes but grad_health. panic_v1: "
        "nonfinite_loss, random_guess, loss_divergence and rollback.",
        set_detect, [](const Options& o) { return o.detect; }},
    amount<&Options::cooldown_seconds>(
        "cooldown_seconds",
        "An incident that recurs within this time after it cleared is reopened, not new. Not for "
        "non-finite values, host syncs and stalls."),
    whole<&Options::loss_window, 10, 10'000>("loss_window", "10 to 10000",
                                             "Losses that a loss is compared with."),
    amount<&Options::loss_sigma>(
        "loss_sigma",
        "A loss is an outlier if it is this many standard deviations above the mean of those "
        "before, and also beyond loss_ratio and loss_absolute."),
    amount<&Options::loss_ratio>("loss_ratio",
                                 "A loss is an outlier only above this multiple of that mean."),
    amount<&Options::loss_absolute>("loss_absolute",
                                    "A loss is an outlier only above this. 0: no such test."),
    whole<&Options::loss_in_a_row, 1, 1000>(
        "loss_in_a_row", "1 to 1000",
        "This many outliers in a row are a divergence; fewer are a spike."),
    amount<&Options::random_guess_loss>(
        "random_guess_loss",
        "The loss of a random guess: ln of the number of classes, or of the vocabulary. A run that "
        "has learned and comes back to it is an incident. 0: not known."),
    amount<&Options::exploding_factor>(
        "exploding_factor",
        "Gradients explode if their norm is this many times the median of those before."),
    amount<&Options::vanishing_share>("vanishing_share",
                                      "Gradients vanish if the gradients of this share of the "
                                      "parameters are below vanishing_threshold."),
    amount<&Options::drift_threshold>(
        "drift_threshold",
        "The gradient norm drifts if it differs from its running mean by this many times that mean "
        "for 50 steps in a row. From 1 on only a rise counts."),
    whole<&Options::dead_after, 1, kMaxInt>(
        "dead_after", "1 or more",
        "A group is dead if all its gradients are zero in this many steps in a row."),
    whole<&Options::overflow_streak, 1, 1000>(
        "overflow_streak", "1 to 1000",
        "If a gradient scaler skips this many steps in a row, that is an incident."),
    amount<&Options::cost_budget>("cost_budget",
                                  "Share of the steps' time that Gradvane's own hooks may take."),
    choice<&Options::on_nonfinite, kNonfinitePolicies>(
        "on_nonfinite", "watch, skip, stop, rollback",
        "What is done with a step whose loss or gradients are not finite. watch: nothing. skip: "
        "the optimizer does not take it. stop: the same, and the run stops. rollback: the model "
        "goes back to the last good snapshot. On a GPU: one host sync per step. docs/governor.md."),
    choice<&Options::on_divergence, kDivergencePolicies>(
        "on_divergence", "watch, stop, rollback",
        "What is done when the training diverges: at the step after an incident loss_divergence, "
        "random_guess or grad_exploding opened."),
    whole<&Options::skip_limit, 1, kMaxInt>(
        "skip_limit", "1 or more",
        "This many steps skipped in a row lead to the next policy: a rollback where there are "
        "snapshots, and on several ranks where they agree, else a stop."),
    amount<&Options::skip_norm>("skip_norm",
                                "Under `on_nonfinite: skip`, a step whose gradient norm is above "
                                "this is skipped too. 0: any finite norm is taken."),
    on_off<&Options::skip_on_device>(
        "skip_on_device",
        "Python: under `on_nonfinite: skip`, a fused Adam, AdamW or SGD leaves out bad steps on "
        "its CUDA device, and no step waits for the host. With skip_norm, "
        "a gradient scaler, immediate mode or several processes, each step waits as without this "
        "option."),
    on_off<&Options::found_inf_for_scaler>(
        "found_inf_for_scaler",
        "Python: GradScaler.step() with a fused optimizer takes `found_inf` from Gradvane's read "
        "of the gradients, and does not read and write all of them for a check of its own."),
    whole<&Options::snapshot_every, 0, kMaxInt>(
        "snapshot_every", "0 or more",
        "Steps between two snapshots of the training's state. 0: every 100 if a "
        "policy is rollback and snapshot_seconds is 0, else none."),
    amount<&Options::snapshot_seconds>(
        "snapshot_seconds",
        "Seconds between two snapshots, in addition to snapshot_every. 0: by steps only."),
    amount<&Options::snapshot_budget>(
        "snapshot_budget",
        "Share of the training's time that snapshots may take: one that would exceed it comes "
        "later. 0: any."),
    whole<&Options::rollback_limit, 1, kMaxInt>(
        "rollback_limit", "1 or more",
        "A rollback that would be one more than this within rollback_window stops the run "
        "instead."),
    whole<&Options::rollback_window, 1, kMaxInt>("rollback_window", "1 or more",
                                                 "Steps within which rollbacks are counted."),
    choice<&Options::rollback_optimizer, record::kRollbackOptimizers>(
        "rollback_optimizer", "restore, reset, keep",
        "What a policy's rollback does with the optimizers. restore: state and hyperparameters as "
        "they were. reset: hyperparameters as they were, and no state. keep: they stay as they "
        "are."),
    OptionSpec{
        "rollback_lr_factor", "a finite number above 0",
        "A policy's rollback multiplies the learning rates of the snapshot by this, once more at "
        "each return to the same snapshot. Without effect if rollback_optimizer is keep.",
        [](Options& o, std::string_view text) {
          return parse_number(text, std::numeric_limits<double>::min(),
                              std::numeric_limits<double>::max(), o.rollback_lr_factor);
        },
        [](const Options& o) { return format(o.rollback_lr_factor); }},
    on_off<&Options::rollback_device_sync>(
        "rollback_device_sync",
        "A rollback first waits for everything that is under way on each device, instead of "
        "ordering the streams that it knows of. For programs that write weights on a stream that "
        "Agent.writes_on() was not told of. Each wait is in gradvane_host_syncs_total, with "
        "kind=\"device\" and origin=\"gradvane\"."),
    choice<&Options::ranks, kRankAgreements>(
        "ranks", "off, agree",
        "agree: all ranks of a run tell each other of each step before the update, and policies "
        "act on all of them or on none. It costs one small exchange per step. Snapshots must come "
        "by "
        "steps. A C++ program calls Agent::agree_over()."),
    on_off<&Options::check_before_reduction>(
        "check_before_reduction",
        "Each rank looks at its gradients before ranks average them, so that the rank that a NaN "
        "comes from is known. One more read of them. With ranks: agree. In Python under "
        "DistributedDataParallel; a C++ program calls Agent::before_reduction()."),
    whole<&Options::compare_replicas_every, 0, kMaxInt>(
        "compare_replicas_every", "0 or more",
        "Steps between two comparisons of the weights of ranks that began with the same ones. They "
        "compare checksums; each comparison reads all weights once. 0: none. With ranks: agree."),
    OptionSpec{"alertmanager_url",
               "http://host:port or https://host:port, with a path prefix if there is one",
               "Incidents that have an alert are sent to this Alertmanager at once, in addition to "
               "what Prometheus sends. Empty: none.",
               set_alert_url, [](const Options& o) { return o.alertmanager_url; }},
    text<&Options::alertmanager_http_config>("alertmanager_http_config", "path of a YAML file",
                                             "TLS, a password or a token for it, as Prometheus and "
                                             "amtool have them. docs/alert-push.md."),
    OptionSpec{
        "alertmanager_labels", "name=value,name=value",
        "Labels that Prometheus' alerts have besides, above all job, so that Alertmanager sees "
        "both reports as one alert.",
        set_alert_labels, [](const Options& o) { return o.alertmanager_labels; }},
    on_off<&Options::recorder>(
        "recorder",
        "Keep the last steps, all parameters, in memory, and write them to a file when something "
        "goes wrong. `gradvane replay` shows what such a file holds."),
    text<&Options::recorder_dir>("recorder_dir", "path of a directory",
                                 "Where recordings are written. Default: the run directory."),
    whole<&Options::recorder_steps, 1, 1'000'000>("recorder_steps", "1 to 1000000",
                                                  "Most steps that are kept in memory."),
    whole<&Options::recorder_memory_bytes, std::int64_t{65536}, std::int64_t{1} << 40>(
        "recorder_memory_bytes", "65536 to 1099511627776", "Most memory that they take."),
    whole<&Options::recorder_disk_bytes, std::int64_t{-1}, std::int64_t{1} << 40>(
        "recorder_disk_bytes", "-1 to 1099511627776",
        "Size of a ring on disk that outlives a process which is killed; a run that finishes "
        "removes it. -1: 33554432, or 8388608 where the disk is memory (tmpfs). 0: none."),
    whole<&Options::recorder_kept, 1, 10'000>("recorder_kept", "1 to 10000",
                                              "Most files of this run and rank; the oldest go."),
    choice<&Options::recorder_signal, kRecorderSignals>(
        "recorder_signal", "none, usr1, usr2",
        "Signal that asks for a recording, if the program does not handle it."),
    choice<&Options::trace_nonfinite, kTraces>(
        "trace_nonfinite", "off, next_step, always",
        "Which steps are traced, from Python, for the first module whose output or gradient is not "
        "finite. next_step: the step after a non-finite incident opened, once per incident. "
        "always: "
        "every step, at the cost that docs/trace-nonfinite.md measures."),
    choice<&Options::norm_exchange, kNormSharings>(
        "norm_exchange", "auto, off",
        "Whether ranks that hold parts of the same parameters (FSDP2, DTensor) exchange the norms "
        "of their parts over the store of the process group. off: grad_norm is absent on such "
        "ranks, shard_grad_norm is not."),
    on_off<&Options::handle_sigterm>(
        "handle_sigterm",
        "At SIGTERM: export the last steps, wait for one more scrape "
        "as at any end (linger_seconds) while steps are still "
        "recorded, then die by it; a second one kills at once. At SIGINT the same without the "
        "wait. Only if the program does not handle the signal: Python handles SIGINT itself."),
};

}  // namespace

std::span<const OptionSpec> option_table() noexcept { return kTable; }

const OptionSpec* find_option(std::string_view key) noexcept {
  const auto found = std::find_if(kTable.begin(), kTable.end(),
                                  [key](const OptionSpec& option) { return option.key == key; });
  return found == kTable.end() ? nullptr : &*found;
}

std::string environment_name(std::string_view key) {
  if (key == "enabled") return "GRADVANE";
  std::string name = "GRADVANE_";
  for (const char c : key) name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

std::string argument_name(std::string_view key) {
  std::string name = "--gradvane-";
  for (const char c : key) name += c == '_' ? '-' : c;
  return name;
}

}  // namespace gradvane::agent
