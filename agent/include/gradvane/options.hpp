#pragma once
// The settings of an Agent. docs/configuration.md describes every one of them.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#define GRADVANE_API [[gnu::visibility("default")]]

namespace gradvane {

/// One thing that went wrong: opened by its first bad step, closed when it clears.
struct Incident;

/// When the results of a step are read. lagged: later, without waiting for a device. immediate: at
/// the end of the step, which waits once per device; end_step() and step() then return the step's
/// result. A policy for bad steps (Options::on_nonfinite) waits in either mode.
enum class Mode : std::uint8_t { lagged, immediate };

/// Whether host syncs are counted. off: never. automatic: if possible. require: always; set-up
/// fails if it is not possible.
enum class Sync : std::uint8_t { off, automatic, require };

/// Decides between the ledger and PyTorch's profiler: CUPTI has one subscription. gate: the agent
/// keeps it, and KINETO_USE_DAEMON in the environment keeps the profiler off it. yield: the
/// profiler gets it while it runs. share: both, by CUPTI's own sharing (13.3 and later; every tool
/// must support it). automatic: yield in Python. In C++ the agent keeps it, since it cannot see a
/// profiler start.
enum class SyncProfiler : std::uint8_t { automatic, gate, yield, share };

/// The signal that requests a recording.
enum class RecorderSignal : std::uint8_t { none, usr1, usr2 };

/// Which steps are traced for the first module with a non-finite value (Python only). off: those
/// that the program requests. next_step: also the step after a non-finite incident opens. always:
/// all steps.
enum class TraceNonfinite : std::uint8_t { off, next_step, always };

/// Whether policies act by what this rank sees, or by what all ranks of the run see together.
enum class RankAgreement : std::uint8_t { off, agree };

/// Whether processes that hold shards of the same parameters exchange the norms of their shards.
enum class NormSharing : std::uint8_t { automatic, off };

/// Which ranks publish the gauges of groups. rank0: one of the run, local0: one per node. automatic: all, unless that would
/// make more than 50,000 series together; then rank 0. Where ranks hold the same
/// parameters, as under DDP, their gauges are equal. Counters, incidents, the page and the API have the groups of every
/// rank.
enum class GroupSeries : std::uint8_t { automatic, all, local0, rank0 };

/// What is done about a step whose loss or gradients are not finite. watch: nothing, it is reported. skip: the optimizer
/// is not called with it. stop: the same, and the run is asked to stop. rollback: the model goes back to the last good
/// snapshot. docs/governor.md says what each promises.
enum class NonfinitePolicy : std::uint8_t { watch, skip, stop, rollback };

/// The same for a training that diverges: at the step after the incident opened.
enum class DivergencePolicy : std::uint8_t { watch, stop, rollback };

/// What becomes of the optimizers at a rollback.
enum class RollbackOptimizer : std::uint8_t {
  restore,  ///< their state and hyperparameters as they were
  reset,    ///< hyperparameters as they were, and no state
  keep      ///< as they are now
};

/// Settings from code. The same keys exist on the command line as --gradvane-<key>=<value>, in the
/// environment as GRADVANE_<KEY>, and in a YAML file. The command line overrides the environment,
/// which overrides the file, which overrides code. docs/configuration.md describes every key.
struct Options {
  bool enabled = true;   ///< false: nothing is measured; so does GRADVANE=off in the environment
  std::string run = {};  ///< name of the run; default: the program's name
  /// Tells apart the runs of one name. Empty: what the launcher gives, else the time of the start.
  std::string run_id = {};
  std::string config = {};  ///< path of a YAML file; empty: none
  /// Directory of endpoint.rank<R>.json. Empty: gradvane-<uid>/<run> under the temporary directory.
  std::string run_dir = {};
  std::string address = "127.0.0.1";  ///< where the endpoint listens
  std::string token;  ///< that requests have to show; auto: made once for each run directory
  std::string web_config = {};     ///< path of a YAML file with TLS, users and a limit; empty: none
  bool insecure = false;           ///< whether the endpoint may listen on a network with neither
  std::string allowed_hosts = {};  ///< further host names that requests may use
  /// If it is taken, the next free one is used. 0: any free port. -1: no endpoint.
  int port = 9464;
  /// The ranks of one machine have one port for all; false: each has its own, `port` + LOCAL_RANK.
  bool share_port = true;
  Mode mode = Mode::lagged;
  int weight_every = 50;     ///< steps between two reads of the weights; 0: weights are not read
  int update_sample = 4096;  ///< elements per parameter, for the update ratio; 0: no update ratio
  std::string groups = "auto";  ///< auto, depth:N, or name=regex;name=regex;...
  int max_groups = 150;
  GroupSeries group_series =
      GroupSeries::automatic;         ///< ranks whose groups have gauges in /metrics
  int max_series = 2000;              ///< per process; series beyond it are counted, not exported
  double vanishing_threshold = 1e-7;  ///< gradient norm of a parameter that counts as vanishing
  double exploding_threshold = 10.0;  ///< gradient norm of a parameter that counts as exploding
  int ring_slots = 0;         ///< reads that may wait for the worker; 0: 64 to 1,024, by the model
  int history_steps = 4096;   ///< steps kept for /api/v1/steps
  std::string step_log = {};  ///< file with one JSON object per step; empty: none
  std::int64_t step_log_max_bytes = 256 << 20;
  /// The run counts as stalled after this long without a step, and at least 20 median steps. 0: never.
  double stall_seconds = 300;
  /// Most seconds that one evaluation or checkpoint stops the stall clock.
  double stall_pause_seconds = 3600;
  /// How long the end of a run waits for one more scrape, if there was a scrape before.
  double linger_seconds = 5;
  /// The same wait when an incident is open or has not been scraped.
  double linger_incident_seconds = 15;
  bool expect_scraper = false;  ///< wait for a scrape even if there was none before
  std::int64_t start_step = 0;  ///< steps before this process; 0: from the optimizer's state
  int rank = -1;                ///< -1: the launcher's, else 0
  int local_rank = -1;          ///< -1: the launcher's, else 0
  int world_size = -1;          ///< -1: the launcher's, else 1
  double flops_per_token = 0;   ///< of the model, forward and backward, in FLOP; 0: not known
  double peak_flops = 0;        ///< of this process' devices, in FLOP/s; 0: not known
  Sync sync = Sync::automatic;
  int sync_budget = -1;        ///< host syncs per step above which an incident opens; -1: no limit
  int sync_budget_after = 10;  ///< first steps without a budget: they load code and fill caches
  int sync_threshold_us = 50;  ///< microseconds from which a call that may wait counts as a sync
  SyncProfiler sync_profiler = SyncProfiler::automatic;
  std::string sync_library = {};   ///< path of a libcupti; empty: it is searched for
  std::string sync_report = {};    ///< file for /api/v1/syncs at the end of the run; empty: none
  std::string detect = "default";  ///< incident classes to detect; docs/detectors.md
  double cooldown_seconds = 60;  ///< an incident that recurs within this time is reopened, not new
  int loss_window = 20;          ///< losses that each new loss is compared with
  double loss_sigma = 6;         ///< a spike is this many standard deviations above their mean,
  double loss_ratio = 3;         ///< this many times their mean,
  double loss_absolute = 0;      ///< and above this value; 0: any value
  int loss_in_a_row = 3;         ///< this many spikes in a row are a divergence
  double random_guess_loss = 0;  ///< loss of a random guess; 0: not known
  double exploding_factor = 10;  ///< gradient norm over the median of earlier steps
  double vanishing_share = 0.5;  ///< share of the parameters whose gradients vanish
  double drift_threshold = 2;    ///< change of the gradient norm, relative to its running mean
  int dead_after = 50;           ///< steps in a row in which all gradients of a group are zero
  int overflow_streak = 8;       ///< steps in a row that a gradient scaler skips
  double cost_budget = 0.05;     ///< share of a step's time that the hooks may take
  NonfinitePolicy on_nonfinite = NonfinitePolicy::watch;
  DivergencePolicy on_divergence = DivergencePolicy::watch;
  int skip_limit = 5;    ///< steps skipped in a row after which the run goes back, or stops
  double skip_norm = 0;  ///< under `skip`, a gradient norm above it is skipped too; 0: any norm
  /// Python, under `skip`: optimizers that can, leave out bad steps on their device, and no step
  /// waits for it.
  bool skip_on_device = false;
  /// Python: GradScaler.step() with a fused optimizer takes what the agent's read has found, and reads nothing itself.
  bool found_inf_for_scaler = false;
  int snapshot_every = 0;       ///< steps; 0: every 100 if a policy is rollback, else never
  double snapshot_seconds = 0;  ///< time between two snapshots; 0: they come by steps
  double snapshot_budget = 0;   ///< share of the training's time that they may take; 0: any
  int rollback_limit = 3;  ///< rollbacks within rollback_window after which the run stops instead
  int rollback_window = 1000;  ///< steps
  /// Of the rollbacks of a policy, as are the two before.
  RollbackOptimizer rollback_optimizer = RollbackOptimizer::restore;
  /// Multiplies the learning rates of the snapshot, once more at each return to the same one.
  double rollback_lr_factor = 1;
  /// A rollback first waits for everything on each device, instead of ordering streams.
  bool rollback_device_sync = false;
  RankAgreement ranks = RankAgreement::off;  ///< on the steps that policies act on
  bool check_before_reduction = false;       ///< with ranks: agree; C++: Agent::before_reduction()
  int compare_replicas_every = 0;            ///< steps, with ranks: agree; 0: never
  std::string alertmanager_url = {};  ///< Alertmanager that incidents are sent to; empty: none
  std::string alertmanager_http_config =
      {};  ///< path of a YAML file with TLS and a password for it; empty: none
  std::string alertmanager_labels =
      {};                         ///< "name=value,name=value", as Prometheus labels the target
  bool recorder = true;           ///< keep the last steps for a recording
  std::string recorder_dir = {};  ///< directory of recordings; default: run_dir
  int recorder_steps = 1000;      ///< most steps kept in memory
  std::int64_t recorder_memory_bytes = 64 << 20;  ///< most memory for them
  /// Size of a ring on disk, which survives a killed run. 0: none. -1: 32 MiB, or 8 MiB on a tmpfs.
  std::int64_t recorder_disk_bytes = -1;
  int recorder_kept = 8;                                  ///< most recordings kept per run and rank
  RecorderSignal recorder_signal = RecorderSignal::none;  ///< signal that requests a recording
  TraceNonfinite trace_nonfinite = TraceNonfinite::off;
  NormSharing norm_exchange = NormSharing::automatic;  ///< for the norms of sharded parameters
  /// Exports the last steps on SIGTERM, then ends the process by it. A second SIGTERM ends the
  /// process at once. It has no effect if the program handles SIGTERM itself.
  bool handle_sigterm = true;
  /// Receives the agent's few messages. Called on the agent's threads and during set-up.
  /// Default: one line with the address on the standard error, and nothing else.
  std::function<void(std::string_view line)> log = {};
  /// Receives every incident when it opens, when more is known about it, and when it clears. Called
  /// on the agent's thread, which waits for it. Exceptions that it throws are dropped.
  std::function<void(const Incident& incident)> on_incident = {};
  /// Settings as "key=value" that override the environment; take_arguments() returns such a list.
  std::vector<std::string> command_line = {};
};

/// Removes every --gradvane-<key>=<value> from argv and returns them as "key=value".
[[nodiscard]] GRADVANE_API std::vector<std::string> take_arguments(int& argc, char** argv);

}  // namespace gradvane
