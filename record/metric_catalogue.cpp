#include "record/metric_catalogue.hpp"

#include <algorithm>
#include <array>

#include "record/governor_summary.hpp"
#include "record/incident_classes.hpp"
#include "record/names.hpp"
#include "record/run/end_reason.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::record {
namespace {

using enum MetricType;
using Words = std::string_view;

constexpr std::array kAgentPlaces{Words{"hooks"}, Words{"worker"}, Words{"http"}};
constexpr std::array kDropReasons{Words{"ring_overrun"}, Words{"read_lost"},
                                  Words{"user_metric_limit"}};
constexpr std::array kExporters{
    Words{"prometheus"},      Words{"status_board"}, Words{"run_history"},  Words{"step_log"},
    Words{"flight_recorder"}, Words{"alert_push"},   Words{"norm_exchange"}};
constexpr std::array kResults{Words{"ok"}, Words{"failed"}};
constexpr std::array kHttpCodes{Words{"200"}, Words{"304"}, Words{"400"}, Words{"403"},
                                Words{"404"}, Words{"405"}, Words{"413"}, Words{"421"},
                                Words{"431"}, Words{"500"}, Words{"503"}};
constexpr std::array kConnectionDrops{Words{"limit"}, Words{"header_deadline"},
                                      Words{"write_deadline"}};
constexpr std::array kBudgetOrigins{name_of(SyncOrigin::training), name_of(SyncOrigin::gradvane)};
constexpr std::array kCoverageStates{Words{"covered"}, Words{"blind"}};
/// `none` is no reason.
constexpr std::span<const Words> kSkipReasons = std::span(kNames<SkipReason>).subspan(1);
constexpr std::span<const Words> kOpen{};

constexpr std::array kRunInfoLabels{LabelInfo{"run_id", kOpen}, LabelInfo{"world_size", kOpen},
                                    LabelInfo{"local_rank", kOpen}, LabelInfo{"torch", kOpen}};
constexpr std::array kDeviceLabels{LabelInfo{"device", kOpen}, LabelInfo{"uuid", kOpen},
                                   LabelInfo{"name", kOpen}};
constexpr std::array kBuildInfoLabels{LabelInfo{"version", kOpen}};
constexpr std::array kStateLabels{LabelInfo{"state", kNames<RunState>}};
constexpr std::array kEndLabels{LabelInfo{"reason", kNames<EndReason>}};
constexpr std::array kPhaseLabels{LabelInfo{"phase", kNames<Phase>}};
constexpr std::array kStepPhaseLabels{
    LabelInfo{"phase", std::span(kNames<Phase>).first<kStepPhases>()}};
constexpr std::array kRateLabels{LabelInfo{"optimizer", kOpen}, LabelInfo{"param_group", kOpen}};
/// A run with one optimizer, as nearly all are, is spared the label.
constexpr std::array kOptimizerLabels{
    LabelInfo{.name = "optimizer", .values = kOpen, .optional = true}};
constexpr std::array kUserLabels{LabelInfo{"name", kOpen}};
constexpr std::array kParamLabels{
    LabelInfo{"state", kNames<ParamState>},
    LabelInfo{.name = "optimizer", .values = kOpen, .optional = true}};
constexpr std::array kGroupLabels{LabelInfo{"group", kOpen}};
constexpr std::array kSiteLabels{LabelInfo{"site", kNames<Site>}};
constexpr std::array kElementLabels{LabelInfo{"site", kNames<Site>},
                                    LabelInfo{"kind", kNames<NonfiniteKind>}};
constexpr std::array kBadStepLabels{LabelInfo{"site", kNames<Site>},
                                    LabelInfo{"kind", kNames<NonfiniteKind>},
                                    LabelInfo{"group", kOpen}};
constexpr std::array kSkipLabels{LabelInfo{"reason", kSkipReasons}};
constexpr std::array kSnapshotLabels{LabelInfo{"result", kNames<SnapshotResult>}};
constexpr std::array kRollbackLabels{LabelInfo{"reason", kNames<RollbackReason>}};
constexpr std::array kClassLabels{LabelInfo{"class", kNames<IncidentClass>}};
constexpr std::array kIncidentInfoLabels{LabelInfo{"class", kNames<IncidentClass>},
                                         LabelInfo{"step", kOpen},
                                         LabelInfo{"site", kOpen},
                                         LabelInfo{"kind", kOpen},
                                         LabelInfo{"param", kOpen},
                                         LabelInfo{"element", kOpen},
                                         LabelInfo{"group", kOpen},
                                         LabelInfo{"began_in", kOpen},
                                         LabelInfo{"module", kOpen}};
constexpr std::array kResultLabels{LabelInfo{"result", kResults}};
constexpr std::array kSyncLabels{LabelInfo{"kind", kNames<SyncKind>},
                                 LabelInfo{"origin", kNames<SyncOrigin>}};
constexpr std::array kLocationLabels{LabelInfo{"location", kOpen}};
constexpr std::array kOriginLabels{LabelInfo{"origin", kNames<SyncOrigin>}};
constexpr std::array kBudgetLabels{LabelInfo{"origin", kBudgetOrigins}};
constexpr std::array kSourceLabels{LabelInfo{"source", kNames<SyncSource>},
                                   LabelInfo{"reason", kNames<SyncReason>}};
constexpr std::array kCoverageLabels{LabelInfo{"state", kCoverageStates}};
constexpr std::array kSyncDropLabels{LabelInfo{"reason", kNames<SyncDrop>}};
constexpr std::array kPlaceLabels{LabelInfo{"where", kAgentPlaces}};
constexpr std::array kDropLabels{LabelInfo{"reason", kDropReasons}};
constexpr std::array kExporterLabels{LabelInfo{"exporter", kExporters}};
constexpr std::array kCodeLabels{LabelInfo{"code", kHttpCodes}};
constexpr std::array kConnectionLabels{LabelInfo{"reason", kConnectionDrops}};
constexpr std::span<const LabelInfo> kNone{};

constexpr Words kAlways = "From the start of the run.";
constexpr Words kAtZero = "From the start of the run, at 0.";
constexpr Words kFirstStep = "From the first step on.";
constexpr Words kSnapshots =
    "From the first step with a policy `rollback`, at 0; else once a snapshot was taken.";
constexpr Words kGradRead = "From the first step whose gradients were read.";
constexpr Words kGradFinite = "From the first step whose gradients had a finite element.";
constexpr Words kGradNonzero =
    "From the first step whose gradients had a finite element other than zero.";
constexpr Words kWeightRead = "From the first step that read weights (every `weight_every` steps).";
constexpr Words kCounted = "Once host syncs were counted, then at 0.";
constexpr Words kPlaceCounted =
    "Once host syncs were counted, then at 0 for `other`; 20 more places at most.";
constexpr Words kBudgetCounted =
    "Once host syncs were counted; for origin `training` only where a budget is set.";
constexpr Words kUpdateRead = "From the first step that read weights, unless `update_sample` is 0.";

// Help texts end without a full stop, as Prometheus' own do, and hold no line break.
constexpr std::array<MetricInfo, kMetrics> kCatalogue{{
    {Metric::run_info, "gradvane_run_info", info, "", kRunInfoLabels,
     "What is known of this process of the run; join other metrics on run and rank", kAlways,
     false},
    {Metric::world_size, "gradvane_world_size", gauge, "", kNone,
     "Processes of the run, as the launcher or the process group gives it",
     "From the start of the run, unless only the rank is known.", true},
    {Metric::build_info, "gradvane_build_info", info, "", kBuildInfoLabels,
     "Version of Gradvane that watches this process", kAlways, false},
    {Metric::run_state, "gradvane_run_state", gauge, "", kStateLabels,
     "1 for the state the run is in, 0 for the others", kAlways, true},
    {Metric::run_start_timestamp_seconds, "gradvane_run_start_timestamp_seconds", gauge, "seconds",
     kNone, "When the agent started, in seconds since the epoch", kAlways, false},
    {Metric::run_end_info, "gradvane_run_end_info", info, "", kEndLabels,
     "Why the run ended: well, by an error, an exit status, SIGTERM or Ctrl-C",
     "Once the run has ended.", false},

    {Metric::steps_total, "gradvane_steps_total", counter, "", kNone,
     "Optimizer steps since this process started, of all optimizers together", kAtZero, true},
    {Metric::micro_steps_total, "gradvane_micro_steps_total", counter, "", kNone,
     "Backward passes that went into those steps", kAtZero, true},
    {Metric::run_step, "gradvane_run_step", gauge, "", kNone,
     "Number of the latest step of the run; a resumed run counts on", kFirstStep, false},
    {Metric::last_step_timestamp_seconds, "gradvane_last_step_timestamp_seconds", gauge, "seconds",
     kNone, "When the latest step ended, in seconds since the epoch", kFirstStep, false},
    {Metric::step_duration_seconds, "gradvane_step_duration_seconds", histogram, "seconds", kNone,
     "Time from the end of one step to the end of the next", kAtZero, true},
    {Metric::phase_seconds_total, "gradvane_phase_seconds_total", counter, "seconds", kPhaseLabels,
     "Time of each phase, as the training loop marks it or the hooks in Python see it",
     "Once the phase was marked or seen.", false},
    {Metric::tokens_total, "gradvane_tokens_total", counter, "", kNone,
     "Tokens trained on, as the training loop counts them", "Once tokens were counted.", false},
    {Metric::samples_total, "gradvane_samples_total", counter, "", kNone,
     "Samples trained on, as the training loop counts them", "Once samples were counted.", false},
    {Metric::model_flops_utilization_ratio, "gradvane_model_flops_utilization_ratio", gauge,
     "ratio", kNone,
     "Model FLOPs of the tokens per second, as a share of peak_flops; averaged over some ten steps",
     "If flops_per_token and peak_flops are given, once tokens were counted.", false},

    {Metric::loss, "gradvane_loss", gauge, "", kOptimizerLabels,
     "Loss of the latest step in which it was finite", "Once a finite loss was handed over.",
     false},
    {Metric::learning_rate, "gradvane_learning_rate", gauge, "", kRateLabels,
     "Learning rate of each parameter group of each optimizer", kFirstStep, false},
    {Metric::loss_scale, "gradvane_loss_scale", gauge, "", kOptimizerLabels,
     "Factor by which a gradient scaler multiplies the loss", "Once a gradient scaler was seen.",
     false},
    {Metric::user_metric, "gradvane_user_metric", gauge, "", kUserLabels,
     "Numbers that the training loop logs itself", "Once the name was logged with a finite value.",
     false},

    {Metric::grad_norm, "gradvane_grad_norm", gauge, "", kOptimizerLabels,
     "L2 norm of all gradients over their finite elements, before clipping", kGradFinite, false},
    {Metric::grad_norm_at_step, "gradvane_grad_norm_at_step", gauge, "", kOptimizerLabels,
     "L2 norm of all gradients as the optimizer used them, after clipping",
     "Once gradients were clipped or read by the optimizer's hook.", false},
    {Metric::shard_grad_norm, "gradvane_shard_grad_norm", gauge, "", kOptimizerLabels,
     "L2 norm of the part of the gradients that lies in this process, of sharded parameters",
     "Once gradients of sharded parameters were read.", false},
    {Metric::clip_coefficient, "gradvane_clip_coefficient", gauge, "", kOptimizerLabels,
     "Factor by which clipping multiplied the gradients, 1 where it left them alone",
     "Once gradients were clipped.", false},
    {Metric::grad_abs_max, "gradvane_grad_abs_max", gauge, "", kOptimizerLabels,
     "Largest magnitude among the finite elements of all gradients", kGradFinite, false},
    {Metric::grad_abs_min_nonzero, "gradvane_grad_abs_min_nonzero", gauge, "", kOptimizerLabels,
     "Smallest nonzero magnitude among the finite elements of all gradients", kGradNonzero, false},
    {Metric::grad_abs_mean, "gradvane_grad_abs_mean", gauge, "", kOptimizerLabels,
     "Mean magnitude of the finite elements of all gradients", kGradFinite, false},
    {Metric::grad_zero_ratio, "gradvane_grad_zero_ratio", gauge, "ratio", kOptimizerLabels,
     "Share of gradient elements that are exactly zero", kGradRead, false},
    {Metric::grad_subnormal_ratio, "gradvane_grad_subnormal_ratio", gauge, "ratio",
     kOptimizerLabels,
     "Share of gradient elements that are subnormal: so small that precision is lost", kGradRead,
     false},
    {Metric::weight_norm, "gradvane_weight_norm", gauge, "", kOptimizerLabels,
     "L2 norm of all weights over their finite elements", kWeightRead, false},
    {Metric::update_ratio, "gradvane_update_ratio", gauge, "ratio", kOptimizerLabels,
     "Norm of a step's change of the weights over the norm of the weights, estimated from a sample",
     kUpdateRead, false},
    {Metric::grad_health, "gradvane_grad_health", gauge, "", kOptimizerLabels,
     "Health score of the gradients from 0 (bad) to 1, preset esper_v1", kGradRead, false},
    {Metric::params, "gradvane_params", gauge, "", kParamLabels,
     "Parameters of the optimizer by what their gradient was in its latest step", kFirstStep,
     false},
    {Metric::params_vanishing, "gradvane_params_vanishing", gauge, "", kOptimizerLabels,
     "Parameters whose gradient norm is below the vanishing threshold", kGradRead, false},
    {Metric::params_exploding, "gradvane_params_exploding", gauge, "", kOptimizerLabels,
     "Parameters whose gradient norm is above the exploding threshold, or whose gradient is not "
     "finite",
     kGradRead, false},

    {Metric::group_grad_norm, "gradvane_group_grad_norm", gauge, "", kGroupLabels,
     "L2 norm of the group's gradients over their finite elements, before clipping", kGradFinite,
     false},
    {Metric::group_grad_abs_max, "gradvane_group_grad_abs_max", gauge, "", kGroupLabels,
     "Largest magnitude among the finite elements of the group's gradients", kGradFinite, false},
    {Metric::group_grad_abs_min_nonzero, "gradvane_group_grad_abs_min_nonzero", gauge, "",
     kGroupLabels, "Smallest nonzero magnitude among the finite elements of the group's gradients",
     kGradNonzero, false},
    {Metric::group_grad_abs_mean, "gradvane_group_grad_abs_mean", gauge, "", kGroupLabels,
     "Mean magnitude of the finite elements of the group's gradients", kGradFinite, false},
    {Metric::group_grad_zero_ratio, "gradvane_group_grad_zero_ratio", gauge, "ratio", kGroupLabels,
     "Share of the group's gradient elements that are exactly zero", kGradRead, false},
    {Metric::group_grad_subnormal_ratio, "gradvane_group_grad_subnormal_ratio", gauge, "ratio",
     kGroupLabels,
     "Share of the group's gradient elements that are subnormal: so small that precision is lost",
     kGradRead, false},
    {Metric::group_weight_norm, "gradvane_group_weight_norm", gauge, "", kGroupLabels,
     "L2 norm of the group's weights over their finite elements", kWeightRead, false},
    {Metric::group_update_ratio, "gradvane_group_update_ratio", gauge, "ratio", kGroupLabels,
     "Norm of a step's change of the group's weights over their norm, estimated from a sample",
     kUpdateRead, false},

    {Metric::site_reads_total, "gradvane_site_reads_total", counter, "", kSiteLabels,
     "Steps in which the loss, the gradients or the weights were read; 0 means never measured",
     kAtZero, true},
    {Metric::nonfinite_elements_total, "gradvane_nonfinite_elements_total", counter, "",
     kElementLabels, "Elements that were NaN or infinite, lost records included", kAtZero, true},
    {Metric::nonfinite_steps_total, "gradvane_nonfinite_steps_total", counter, "", kBadStepLabels,
     "Steps in which a group held NaN or infinite elements; overflow that a gradient scaler "
     "handled is left out",
     "From the start of the run, at 0, for group `loss` (site loss) and `unknown` (a step whose "
     "own record was lost); a parameter group from its first such step on.",
     false},
    {Metric::amp_overflow_steps_total, "gradvane_amp_overflow_steps_total", counter, "", kNone,
     "Steps that a gradient scaler skipped because of overflow", kAtZero, true},
    {Metric::skipped_steps_total, "gradvane_skipped_steps_total", counter, "", kSkipLabels,
     "Optimizer steps that left the weights as they were", kAtZero, true},
    {Metric::snapshots_total, "gradvane_snapshots_total", counter, "", kSnapshotLabels,
     "Snapshots of the training's state that were committed, and those that were refused",
     kSnapshots, false},
    {Metric::snapshot_age_seconds, "gradvane_snapshot_age_seconds", gauge, "seconds", kNone,
     "Time since the newest good snapshot was taken", "While there is a good snapshot.", false},
    {Metric::rollbacks_total, "gradvane_rollbacks_total", counter, "", kRollbackLabels,
     "Times that the training went back to a snapshot", kSnapshots, false},
    {Metric::ranks_agree, "gradvane_ranks_agree", gauge, "", kNone,
     "1 while ranks decide on bad steps together, 0 once this one decides alone",
     "With `ranks: agree` and a policy.", false},
    {Metric::incidents_total, "gradvane_incidents_total", counter, "", kClassLabels,
     "Incidents opened; one that lasts for many steps counts once", kAtZero, true},
    {Metric::incidents_open, "gradvane_incidents_open", gauge, "", kClassLabels,
     "Incidents that have not cleared yet", kAtZero, true},
    {Metric::incident_info, "gradvane_incident_info", info, "", kIncidentInfoLabels,
     "The latest incident of each class: where it began; what does not apply is empty",
     "Once an incident of that class has opened.", false},
    {Metric::recordings_total, "gradvane_recordings_total", counter, "", kResultLabels,
     "Recordings of the last steps written to files, and those that could not be", kAtZero, true},
    {Metric::alert_pushes_total, "gradvane_alert_pushes_total", counter, "", kResultLabels,
     "Alerts handed to Alertmanager directly, and those that it did not take", kAtZero, true},

    {Metric::process_resident_memory_bytes, "gradvane_process_resident_memory_bytes", gauge,
     "bytes", kNone, "Resident memory of the training process", "Once it was measured.", false},
    {Metric::device_memory_allocated_bytes, "gradvane_device_memory_allocated_bytes", gauge,
     "bytes", kNone, "Device memory that tensors of this process hold",
     "On a device, once it was measured.", false},
    {Metric::device_memory_reserved_bytes, "gradvane_device_memory_reserved_bytes", gauge, "bytes",
     kNone, "Device memory that the caching allocator of this process holds",
     "On a device, once it was measured.", false},
    {Metric::device_memory_peak_bytes, "gradvane_device_memory_peak_bytes", gauge, "bytes", kNone,
     "The most device memory that tensors of this process held at a time, since it began or reset "
     "torch's peak",
     "On a device, once it was measured.", false},
    {Metric::device_memory_limit_bytes, "gradvane_device_memory_limit_bytes", gauge, "bytes", kNone,
     "Device memory that torch's allocator may take", "On a device, once it was measured.", false},
    {Metric::device_allocation_retries_total, "gradvane_device_allocation_retries_total", counter,
     "", kNone,
     "Allocations that succeeded only after the caching allocator gave its free blocks back",
     "On a device, once it was measured.", false},
    {Metric::device_out_of_memory_total, "gradvane_device_out_of_memory_total", counter, "", kNone,
     "Allocations of device memory that failed", "On a device, once it was measured.", false},
    {Metric::device_info, "gradvane_device_info", info, "", kDeviceLabels,
     "The devices that hold the parameters; `uuid` is that of DCGM's metrics",
     "If parameters are on a CUDA device.", false},

    {Metric::host_syncs_total, "gradvane_host_syncs_total", counter, "", kSyncLabels,
     "Calls that made the CPU wait for the GPU; those of kind rejected_in_capture did not wait",
     kCounted, false},
    {Metric::host_sync_seconds_total, "gradvane_host_sync_seconds_total", counter, "seconds",
     kSyncLabels, "Time that threads were blocked in host syncs, all threads together", kCounted,
     false},
    {Metric::host_syncs_by_phase_total, "gradvane_host_syncs_by_phase_total", counter, "",
     kStepPhaseLabels, "Host syncs of the training that waited, by phase of the step", kCounted,
     false},
    {Metric::host_sync_phase_seconds_total, "gradvane_host_sync_phase_seconds_total", counter,
     "seconds", kStepPhaseLabels,
     "Time that the training was blocked in host syncs, by phase of the step", kCounted, false},
    {Metric::host_sync_location_total, "gradvane_host_sync_location_total", counter, "",
     kLocationLabels, "Host syncs of the training, by place in the code", kPlaceCounted, false},
    {Metric::host_sync_location_seconds_total, "gradvane_host_sync_location_seconds_total", counter,
     "seconds", kLocationLabels,
     "Time that the training was blocked in host syncs, by place in the code", kPlaceCounted,
     false},
    {Metric::device_polls_total, "gradvane_device_polls_total", counter, "", kBudgetLabels,
     "Calls that asked whether a stream or an event is done, without waiting", kCounted, false},
    {Metric::device_poll_seconds_total, "gradvane_device_poll_seconds_total", counter, "seconds",
     kBudgetLabels, "Time of the calls that asked whether a stream or an event is done", kCounted,
     false},
    {Metric::step_host_syncs, "gradvane_step_host_syncs", gauge, "", kOriginLabels,
     "Host syncs that waited in the latest step that was counted from end to end",
     "From the first such step on.", false},
    {Metric::sync_budget, "gradvane_sync_budget", gauge, "", kBudgetLabels,
     "Host syncs that a step may have", kBudgetCounted, false},
    {Metric::sync_budget_breaches_total, "gradvane_sync_budget_breaches_total", counter, "",
     kBudgetLabels, "Steps that had more host syncs than they may", kBudgetCounted, false},
    {Metric::sync_source_info, "gradvane_sync_source_info", info, "", kSourceLabels,
     "Where the counts of host syncs come from now, or why there are none", kAlways, false},
    {Metric::sync_coverage_seconds_total, "gradvane_sync_coverage_seconds_total", counter,
     "seconds", kCoverageLabels,
     "Time in which host syncs were counted, and in which they were not", kAtZero, true},
    {Metric::sync_gaps_total, "gradvane_sync_gaps_total", counter, "", kNone,
     "Times that counting host syncs stopped", kAtZero, true},
    {Metric::sync_records_dropped_total, "gradvane_sync_records_dropped_total", counter, "",
     kSyncDropLabels, "Host syncs that were not counted, or not with their place or step", kAtZero,
     true},

    {Metric::agent_seconds_total, "gradvane_agent_seconds_total", counter, "seconds", kPlaceLabels,
     "Time the agent itself took; only hooks is time of the training thread", kAtZero, true},
    {Metric::rank_wait_seconds_total, "gradvane_rank_wait_seconds_total", counter, "seconds", kNone,
     "Time that the training thread waited for other ranks", "Once a wait was seen.", false},
    {Metric::records_dropped_total, "gradvane_records_dropped_total", counter, "", kDropLabels,
     "Records lost before they could be exported, as a whole or (read_lost) but for their facts",
     kAtZero, true},
    {Metric::export_failures_total, "gradvane_export_failures_total", counter, "", kExporterLabels,
     "Calls of an exporter that failed", kAtZero, true},
    {Metric::plan_rebuilds_total, "gradvane_plan_rebuilds_total", counter, "", kNone,
     "Times the set of watched parameters changed while the run lasted", kAtZero, true},
    {Metric::contiguous_copies_total, "gradvane_contiguous_copies_total", counter, "", kNone,
     "Gradients that had to be copied before they could be read", kAtZero, true},
    {Metric::nonfinite_values_refused_total, "gradvane_nonfinite_values_refused_total", counter, "",
     kNone, "NaN or infinite values kept out of gauges, histograms and counters", kAtZero, true},
    {Metric::series, "gradvane_series", gauge, "", kNone,
     "Series of Gradvane's own that this process publishes", kAlways, true},
    {Metric::series_limit, "gradvane_series_limit", gauge, "", kNone,
     "Most series that this process may publish (max_series)", kAlways, true},
    {Metric::series_dropped_total, "gradvane_series_dropped_total", counter, "", kNone,
     "Series that were left out because of that limit", kAtZero, true},
    {Metric::user_families_dropped_total, "gradvane_user_families_dropped_total", counter, "",
     kNone,
     "Metric families of collectables of your own that a scrape left out, being malformed or taken",
     kAtZero, true},
    {Metric::scrapes_total, "gradvane_scrapes_total", counter, "", kNone,
     "Times /metrics was delivered before this one", kAtZero, true},
    {Metric::scrape_seconds_total, "gradvane_scrape_seconds_total", counter, "seconds", kNone,
     "Time it took to write /metrics, those times together", kAtZero, true},
    {Metric::http_requests_total, "gradvane_http_requests_total", counter, "", kCodeLabels,
     "Requests answered by the endpoint, by status code", kAtZero, true},
    {Metric::http_connections_dropped_total, "gradvane_http_connections_dropped_total", counter, "",
     kConnectionLabels, "Connections the endpoint closed on its own account", kAtZero, true},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kMetrics; ++i)
    if (static_cast<std::size_t>(kCatalogue[i].metric) != i) return false;
  return true;
}
static_assert(in_order(), "the table and enum Metric must list the same metrics in the same order");

// Preferred numbers, R10: a quantile is off by a quarter at most, and by a tenth on average.
constexpr std::array kStepBuckets{
    0.001, 0.00125, 0.0016, 0.002, 0.0025, 0.00315, 0.004, 0.005, 0.0063, 0.008,  //
    0.01,  0.0125,  0.016,  0.02,  0.025,  0.0315,  0.04,  0.05,  0.063,  0.08,   //
    0.1,   0.125,   0.16,   0.2,   0.25,   0.315,   0.4,   0.5,   0.63,   0.8,    //
    1.0,   1.25,    1.6,    2.0,   2.5,    3.15,    4.0,   5.0,   6.3,    8.0,    //
    10.0,  12.5,    16.0,   20.0,  25.0,   31.5,    40.0,  50.0,  63.0,   80.0,   //
    100.0};

}  // namespace

std::span<const MetricInfo> metric_catalogue() noexcept { return kCatalogue; }

const MetricInfo& info_of(Metric metric) noexcept {
  return kCatalogue[static_cast<std::size_t>(metric)];
}

bool is_closed(const MetricInfo& metric) noexcept {
  return std::ranges::none_of(metric.labels,
                              [](const LabelInfo& label) { return label.values.empty(); });
}

bool is_of_optimizer(const MetricInfo& metric) noexcept {
  return std::ranges::any_of(metric.labels, &LabelInfo::optional);
}

bool is_of_optimizer(Metric metric) noexcept {
  return is_of_optimizer(kCatalogue[static_cast<std::size_t>(metric)]);
}

std::span<const double> step_duration_buckets() noexcept { return kStepBuckets; }

}  // namespace gradvane::record
