"""Is the run healthy, and how fast is it?"""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.models import units

from grafana_boards.house import BLUE, FLEET, GRADIENTS, GREEN, GREY, OVERVIEW, RED, STABILITY, SYNCS
from grafana_boards.layout import Board, Row
from grafana_boards.panels import Look, Sized, State, Step, graph, name_tile, tile, timeline
from grafana_boards.promql import by, each_optimizer, each_rank, increase, of_gpu, of_run, per_step, per_step_of_rank
from grafana_boards.promql import rate
from grafana_boards.promql import series, share_of_step_time_of_rank
from grafana_boards.queries import Query
from grafana_boards.tables import Column, table

FINITE = (State(0, "finite", GREEN), State(1, "NaN or infinite", RED))
STATE_COLOURS = {"starting": GREY, "running": GREEN, "stalled": RED, "finished": BLUE, "failed": RED}


def states() -> Query:
    return Query("count by (state) (" + series("gradvane_run_state") + " == 1)", "{{state}}", now=True)


WHERE = (("class", "Class", 130), ("step", "Step", 80), ("kind", "Kind", 80), ("param", "Parameter"),
         ("element", "Element", 80))
ALL_OF_WHERE = (*WHERE[:2], ("site", "Site", 70), *WHERE[2:], ("group", "Group", 110), ("began_in", "Began in", 90),
                ("module", "Module"), ("rank", "Rank", 60), ("instance", "Instance", 130))


def incidents_table(labels: Sequence[tuple[str, str] | tuple[str, str, int]], width: int, height: int) -> Sized:
    where = [label for label, *_ in labels]
    info = series("gradvane_incident_info")
    return table(
        "Where incidents began",
        "The latest incident of each class that this range has seen: the step, and what was bad first. Go there: a "
        "later incident is often the consequence of the earliest one. Empty is good.",
        labels,
        [Column("", f"max by ({', '.join(where)}) (last_over_time({info}[$__range]))", units.NoUnit, hidden=True)],
        sort="Step", descending=False, width=width, height=height, nothing="No incident in this range.",
        runbooks=("training-non-finite", "training-loss-non-finite"))


def alerts_table(width: int, height: int) -> Sized:
    return table(
        "Alerts that fire now",
        "What Prometheus tells of this run at the end of the range; each has a runbook of its name in kebab case at "
        "/runbooks/ of the agent. Empty means that nothing fires, or that no rules are loaded.",
        [("alertname", "Alert"), ("severity", "Severity", 80)],
        [Column("", "max by (alertname, severity) ("
                + of_run("ALERTS", 'alertstate="firing"') + ")", units.NoUnit, hidden=True)],
        sort="Severity", descending=False, width=width, height=height,
        nothing="No alert fires, or no rules are loaded.")


def finite_strip(labels: str, name: str, height: int) -> Sized:
    return timeline(
        "Where values were not finite",
        "Red is a stretch in which the loss, a gradient or a weight held NaN or infinity. The graphs of loss and norm "
        "keep their last finite value there: believe this strip, not a straight line.",
        [Query(by(labels, "max", increase("gradvane_nonfinite_elements_total")) + " > bool 0", name)],
        FINITE, height=height, runbooks=("training-non-finite", "training-loss-non-finite"))


def ranks_that_report(width: int = 3) -> Sized:
    found, expected = f"count({series('gradvane_run_info')})", f"max({series('gradvane_world_size')})"
    query = " or ".join(f'label_replace({found} {compared} {expected}, "ranks", "{words}", "", "")'
                        for compared, words in ((">=", "all of them"), ("<", "not all")))
    return name_tile("Ranks that report", "Processes of the run that Prometheus has scraped. Not all: a target is missing, a "
                     "process is gone, or only some are chosen above.", Query(query, "{{ranks}}", now=True),
                     {"all of them": GREEN, "not all": RED}, width=width,
                     runbooks=("ranks-missing", "training-target-down"))


def health() -> Row:
    started = "time() - " + series("gradvane_last_step_timestamp_seconds")
    return Row("Is the run healthy?", (
        name_tile("Ranks by state", "How many processes are in which state. Anything but running or finished wants a "
                  "look: a stalled one is alive and makes no steps.", states(), STATE_COLOURS),
        ranks_that_report(),
        tile("Step", "How far the run is; a resumed run counts on.", units.LocaleFormat,
             Query(f"max({series('gradvane_run_step')})", now=True), decimals=0),
        tile("Steps per second", "Mean over the ranks. A fall with the same data and model means that something waits: "
             "see Phases of a step.", units.Short, Query(f"avg({rate('gradvane_steps_total')})"), decimals=2,
             more=(SYNCS, FLEET)),
        tile("Loss now", "Mean over the ranks, of the latest step in which it was finite.", units.Short,
             Query(by("optimizer", "avg", series("gradvane_loss"))), decimals=3, more=(STABILITY,),
             runbooks=("loss-diverging", "loss-back-to-random-guessing")),
        tile("Gradient norm now", "Largest of the ranks, before clipping. Many times its own past means that training "
             "is about to break.", units.Short,
             Query(by("optimizer", "max", series("gradvane_grad_norm"))), decimals=2,
             more=(GRADIENTS,), runbooks=("gradient-norm-exploding", "gradients-vanishing")),
        tile("Since the last step", "Of the rank that waits longest. Much more than a step takes: the run hangs.",
             units.Seconds, Query(f"max({started})", now=True), decimals=0, runbooks=("training-stalled",)),
        tile("Open incidents", "Classes of incidents that are open on any rank. Not 0: see where it began.",
             units.Short, Query(f"sum({by('class', 'max', series('gradvane_incidents_open'))} > bool 0)", now=True),
             GREEN, (Step(1, RED),),
             decimals=0, more=(STABILITY,)),
        incidents_table(WHERE, 14, 7),
        alerts_table(10, 7),
    ))


def learning() -> Row:
    return Row("Loss and gradients", (
        graph("Loss", "Falls and flattens when all is well. Ranks that part from each other see different data or "
              "have different weights. It keeps its last finite value while it is NaN: see the strip below.",
              units.Short, [Query(each_rank("gradvane_loss"), "rank {{whose}}")],
              Look(runbooks=("loss-spike", "loss-diverging"))),
        graph("Gradient norm", "Before clipping and as the optimizer used it, largest of the ranks. A rise by orders "
              "of magnitude comes before the loss breaks; the clipped one staying flat means that every step is cut.",
              units.Short, [
                  Query(each_optimizer("before clipping", "max", "gradvane_grad_norm"), "{{whose}}"),
                  Query(each_optimizer("as used", "max", "gradvane_grad_norm_at_step"), "{{whose}}")],
              Look(logarithmic=True, has_page=False, more=(GRADIENTS,),
                   runbooks=("gradient-norm-exploding", "gradient-norm-drift"))),
        finite_strip("site", "{{site}}", 5),
        graph("Learning rate", "As the optimizer had it. Compare a break of the loss with the schedule.",
              units.Short, [Query(by("optimizer, param_group", "max", series("gradvane_learning_rate")),
                                  "optimizer {{optimizer}}, group {{param_group}}")],
              Look(width=8, height=7, has_page=False)),
        graph("Update ratio", "How far a step moves the weights, against how large they are. About 0.001 is usual; "
              "far less learns next to nothing, far more is about to break.", units.ScientificNotation,
              [Query(each_rank("gradvane_update_ratio"), "rank {{whose}}")],
              Look(width=8, height=7, logarithmic=True, decimals=1)),
        graph("Clip coefficient", "1 where clipping left the gradients alone. Far below 1 for long: the limit, not "
              "the learning rate, decides how far steps go.", units.PercentUnit,
              [Query(each_optimizer("smallest of the ranks", "min", "gradvane_clip_coefficient"), "{{whose}}")],
              Look(width=8, height=7, from_zero=True, most=1, has_page=False)),
    ))


def speed() -> Row:
    buckets = by("le", "sum", rate("gradvane_step_duration_seconds_bucket"))
    return Row("Speed", (
        graph("Step time", "Half of the steps, p90 and p99 take no longer than this, and the mean. Quantiles are as "
              "fine as the buckets, a quarter at worst; the mean is exact. The upper ones apart from the median are hiccups: data, checkpoints, evaluation.",
              units.Seconds,
              [Query(f"histogram_quantile({share}, {buckets})", name)
               for share, name in ((0.5, "median"), (0.9, "p90"), (0.99, "p99"))]
              + [Query(f"sum({rate('gradvane_step_duration_seconds_sum')})"
                       f" / (sum({rate('gradvane_step_duration_seconds_count')}) > 0)", "mean")],
              Look(width=8, from_zero=True, has_page=False)),
        graph("Phases of a step", "Where the time of a step goes, mean of the ranks, for phases that were "
              "seen or marked. A growing data phase: the loader is too slow.", units.Seconds,
              [Query(per_step("gradvane_phase_seconds_total", labels="phase"), "{{phase}}")],
              Look(width=8, stacked=True, from_zero=True, has_page=False, runbooks=("straggler-rank",))),
        graph("Tokens and samples a second", "All ranks together, as the loop counts them.", units.Short, [
            Query(f"sum({rate('gradvane_tokens_total')})", "tokens"),
            Query(f"sum({rate('gradvane_samples_total')})", "samples")],
              Look(width=8, from_zero=True, has_page=False)),
        graph("Model FLOPs utilization", "What the tokens cost by the model's arithmetic, as a share of what the "
              "devices can do (MFU). 0.4 to 0.6 is usual for large language models; a fall at the same data is time "
              "that the devices wait.", units.PercentUnit,
              [Query(series("gradvane_model_flops_utilization_ratio"), "rank {{rank}}")],
              Look(width=24, height=6, from_zero=True,
                   nothing="Give flops_per_token and peak_flops, and count tokens.")),
    ))


def memory() -> Row:
    return Row("Memory", (
        graph("Resident memory", "Of each process. A steady rise ends at the hand of the memory killer: look for "
              "what the loop collects (losses that keep their graph).", units.BytesIEC,
              [Query(series("gradvane_process_resident_memory_bytes"), "rank {{rank}}")], Look(from_zero=True)),
        graph("Device memory", "Held by tensors, and by the caching allocator, and what that may take. Reserved far above allocated for "
              "long: fragmentation.", units.BytesIEC, [
                  Query(series("gradvane_device_memory_allocated_bytes"), "rank {{rank}} allocated"),
                  Query(series("gradvane_device_memory_reserved_bytes"), "rank {{rank}} reserved"),
                  Query(series("gradvane_device_memory_peak_bytes"), "rank {{rank}} peak"),
                  Query(series("gradvane_device_memory_limit_bytes"), "rank {{rank}} limit")],
              Look(from_zero=True)),
        graph("Allocations retried and failed", "Retried: the allocator gave its free blocks back to the device "
              "first, which is slow and makes the host wait. A rate that stays: the memory is nearly full, or in "
              "fragments. Failed: the program ran out of memory, and went on.", units.Short, [
                  Query(f"sum by (rank) ({increase('gradvane_device_allocation_retries_total')})",
                        "rank {{rank}} retried"),
                  Query(f"sum by (rank) ({increase('gradvane_device_out_of_memory_total')})", "rank {{rank}} failed")],
              Look(from_zero=True, has_page=False, nothing="No device.")),
        table("Devices", "The GPUs that hold each rank's parameters. DCGM's metrics have the same UUID.",
              [("rank", "Rank", 60), ("instance", "Instance", 130), ("device", "Device", 80), ("name", "Name"),
               ("uuid", "UUID")],
              [Column("", by("rank, instance, device, name, uuid", "max", series("gradvane_device_info")),
                      units.NoUnit, hidden=True)], sort="Rank", descending=False, nothing="No device."),
    ), collapsed=True)


def gpus() -> Row:
    """What dcgm-exporter measures, where Prometheus scrapes it too."""
    def of_each(title: str, says: str, unit: str, metric: str) -> Sized:
        return graph(title, says, unit, [Query(of_gpu(metric), "rank {{rank}} {{device}}")],
                     Look(width=12, from_zero=True, has_page=False, nothing="No GPU, or no dcgm-exporter."))

    return Row("GPUs, from dcgm-exporter", (
        of_each("GPU utilization", "Share of the time in which any kernel ran. High while little is computed: kernels "
                "that are small, or wait for memory.", units.Percent, "DCGM_FI_DEV_GPU_UTIL"),
        of_each("Tensor cores", "Share of the time in which they worked. 0.4 to 0.6 is usual for large language models.",
                units.PercentUnit, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        of_each("Power", "A GPU that draws less than the others of its kind waits, or is held back.", units.Watt,
                "DCGM_FI_DEV_POWER_USAGE"),
        of_each("Temperature", "A GPU that gets too hot lowers its clock, and its rank becomes the slowest.", units.Celsius,
                "DCGM_FI_DEV_GPU_TEMP"),
    ), collapsed=True)


def logged() -> Row:
    return Row("What the loop logs, and how it steps", (
        graph("Custom metrics", "What the training loop hands to gradvane.log(), each under its name.",
              units.Short, [Query(series("gradvane_user_metric", 'name!="checkpoint_timestamp_seconds"'),
                                  "{{name}}, rank {{rank}}")], Look(many=True)),
        graph("Backward passes per step", "1 without gradient accumulation. A change means that the loop changed "
              "its mind about how much goes into a step.", units.Short,
              [Query(per_step_of_rank("gradvane_micro_steps_total"), "rank {{rank}}")],
              Look(from_zero=True, has_page=False)),
    ), collapsed=True)


def agent() -> Row:
    return Row("Gradvane itself", (
        graph("Share of the step time", "What the agent's hooks take of the training thread. Above the cost budget "
              "(5 % unless set) an incident opens.", units.PercentUnit,
              [Query(share_of_step_time_of_rank("gradvane_agent_seconds_total", 'where="hooks"'), "rank {{rank}}")],
              Look(width=8, from_zero=True, runbooks=("agent-over-cost-budget",))),
        graph("Gradvane's time by part", "Seconds in each second, mean of the ranks. Only hooks is time of the training thread; "
              "the worker and the endpoint have threads of their own.", units.PercentUnit,
              [Query(by("where", "avg", rate("gradvane_agent_seconds_total")), "{{where}}")],
              Look(width=8, from_zero=True, has_page=False)),
        graph("Lost and refused", "Each of them should stay at 0: records lost before they were exported, exports "
              "that failed, series over the limit, values that are no numbers, families of your own left out.",
              units.Short, [
                  Query(f"sum({increase('gradvane_records_dropped_total')})", "records lost"),
                  Query(f"sum({increase('gradvane_export_failures_total')})", "exports failed"),
                  Query(f"sum({increase('gradvane_series_dropped_total')})", "series over the limit"),
                  Query(f"sum({increase('gradvane_nonfinite_values_refused_total')})", "values not finite"),
                  Query(f"sum({increase('gradvane_user_families_dropped_total')})", "families of your own")],
              Look(width=8, from_zero=True, has_page=False, runbooks=("agent-dropping-data",))),
        graph("Series", "What each process publishes, and how many it may. At the limit, series of groups and names "
              "give way.", units.Short, [
                  Query(series("gradvane_series"), "rank {{rank}}"),
                  Query(f"max({series('gradvane_series_limit')})", "limit")],
              Look(width=8, from_zero=True, runbooks=("agent-series-capped",))),
        graph("Time to write a scrape", "Mean of each process. It does not hold the training up.", units.Seconds,
              [Query(f"{by('rank, instance', 'sum', rate('gradvane_scrape_seconds_total'))}\n"
                     f"/ ({by('rank, instance', 'sum', rate('gradvane_scrapes_total'))} > 0)", "rank {{rank}}")],
              Look(width=8, from_zero=True)),
        graph("Requests", "What the endpoint answered, by status, and connections that it closed on its own account. "
              "Many 503 or dropped ones: too many clients.", units.RequestsPerSecond, [
                  Query(by("code", "sum", rate("gradvane_http_requests_total")) + " > 0", "{{code}}"),
                  Query(f"sum({rate('gradvane_http_connections_dropped_total')})", "dropped")],
              Look(width=8, from_zero=True, has_page=False)),
        graph("Plan changes and copies", "How often the set of parameters changed, and gradients that had to be "
              "copied before they could be read. A steady rate costs time: parameters that come and go, gradients "
              "that are not contiguous.", units.Short, [
                  Query(f"sum({increase('gradvane_plan_rebuilds_total')})", "plan made anew"),
                  Query(f"sum({increase('gradvane_contiguous_copies_total')})", "gradients copied")],
              Look(width=8, from_zero=True, has_page=False)),
        table("Processes", "One row for each process: since when, in which attempt of the run (its run_id), with which torch "
              "and which Gradvane.",
              [("rank", "Rank"), ("instance", "Instance"), ("run_id", "Attempt"), ("local_rank", "Local rank"),
               ("world_size", "World size"), ("torch", "torch"), ("version", "Gradvane")],
              [Column("Started", f"max by (rank, instance, run_id, local_rank, world_size, torch, version) (\n"
                      f"  {series('gradvane_run_start_timestamp_seconds')} * 1000\n"
                      f"  * on (job, instance, run, rank) group_left (run_id, local_rank, world_size, torch) "
                      f"{series('gradvane_run_info')}\n"
                      f"  * on (job, instance, run, rank) group_left (version) {series('gradvane_build_info')})",
                      units.DatetimeISO, width=180)],
              sort="Rank", descending=False, width=16, height=8),
        graph("Ranks by attempt", "Processes that report, by the attempt of the run that they belong to (their run_id). A new "
              "line is a restart. Two at once are two trainings of one name: give one of them another.", units.Short,
              [Query(f"count by (run_id) ({series('gradvane_run_info')})", "{{run_id}}")],
              Look(width=8, from_zero=True, has_page=False, runbooks=("run-name-shared",))),
    ), collapsed=True)


def board() -> Board:
    return Board(OVERVIEW,
                 "Is the run healthy, and how fast is it? Begin here; the other dashboards say why.",
                 (health(), learning(), speed(), memory(), gpus(), logged(), agent()))
