"""Alerts on a run that goes on, but not as it should: slower, waiting for data, one rank behind, ranks that differ."""

from __future__ import annotations

from alert_rules.expressions import OF_RUN, SAME, WHO, first_of, first_rank, number, of_run, selector
from alert_rules.rule import Alert
from alert_rules.windows import Windows

RUN = "Run {{ $labels.run }}:"


def straggler(windows: Windows) -> Alert:
    """Who keeps the others waiting. Four ways to see it, each as a share of the run's typical step.

    Ranks that join their gradients each step have the same step time, however slow one of them is: they wait
    for it. So besides the step time (ranks that do not join each step) what counts is time of a rank's own:
    in the data phase, not blocked in host syncs, and not waiting for the reduction. The others spend their waiting
    in these two. The median of the run's ranks is what is normal.
    """
    def rate(metric: str, *matchers: str) -> str:
        return f"rate({selector(metric, *matchers)}[{windows.rate}])"

    def delays(*run: str) -> str:
        mean = (f"({rate('gradvane_step_duration_seconds_sum', *run)}"
                f" / ({rate('gradvane_step_duration_seconds_count', *run)} > 0) > 0)")
        steps = f"({rate('gradvane_steps_total', *run)} > 0)"
        loading = rate("gradvane_phase_seconds_total", 'phase="data"', *run)
        data = f"(sum without (phase) ({loading}) / {steps} >= 0)"
        waits = rate("gradvane_host_sync_seconds_total", 'origin="training"', *run)
        blocked = f"sum without (kind, origin) ({waits})"
        blindness = rate("gradvane_sync_coverage_seconds_total", 'state="blind"', *run)
        blind = f"sum without (state) ({blindness})"
        own = f"({mean} - {blocked} / {steps} unless {blind} > 0)"
        work = f"({mean} - {rate('gradvane_rank_wait_seconds_total', *run)} / {steps})"

        def delay(seconds: str) -> str:
            typical = "on (job, run) group_left () quantile by (job, run) (0.5, {})"
            return (f"({seconds}\n  - {typical.format(seconds)})\n"
                    f"  / {typical.format(mean)}\n  > {windows.straggler_share}")

        return "\nor\n".join(delay(seconds) for seconds in (mean, data, own, work))

    return Alert(
        "GradvaneStragglerRank", "warning", "One rank keeps the others of its run waiting",
        f"max by ({OF_RUN}) (\n{delays()}\n)",
        (f"{RUN} one rank makes every step {{{{ $value | humanizePercentage }}}} longer than the others do.",
         first_of(f"topk(1, {delays(*SAME)})", "It is rank {{ .Labels.rank }}.")),
        hold=windows.straggler_for)


def data_starvation(windows: Windows) -> Alert:
    """The mean over the ranks; of a single one GradvaneStragglerRank reports."""
    rate = windows.rate
    return Alert(
        "GradvaneDataStarvation", "warning", "A training run waits for its data",
        f'sum by ({OF_RUN}) (rate(gradvane_phase_seconds_total{{phase="data"}}[{rate}]))\n'
        f"/ (sum by ({OF_RUN}) (rate(gradvane_step_duration_seconds_sum[{rate}])) > 0)\n"
        f"> {windows.starvation_share}",
        (f"{RUN} {{{{ $value | humanizePercentage }}}} of the step time is in the data phase.",),
        hold=windows.starvation_for)


def throughput_drop(windows: Windows) -> Alert:
    """Tokens if the loop counts them, else steps; of the mean rank, so that a rank that is gone changes nothing. A run
    that stands still is GradvaneTrainingStalled's."""
    rate, memory = windows.rate, windows.throughput_memory
    pace = (f"(avg by ({OF_RUN}) (rate(gradvane_tokens_total[{rate}]))"
            f" or avg by ({OF_RUN}) (rate(gradvane_steps_total[{rate}])))")
    return Alert(
        "GradvaneThroughputDrop", "warning", "A training run is slower than it was",
        f"1 - ({pace} > 0)\n"
        f"/ (quantile_over_time(0.5, {pace}[{memory}:1m]) > 0)\n"
        f"> {windows.throughput_share}\n"
        # A median of a few minutes is that of the warm-up.
        f"and on ({OF_RUN}) count_over_time({pace}[{memory}:1m]) >= 30",
        (f"{RUN} {{{{ $value | humanizePercentage }}}} below the median throughput of the last {memory}.",),
        hold=windows.throughput_for)


def device_memory(windows: Windows) -> Alert:
    """Two signs, if they last. Allocations that succeed only after the allocator has given its cached blocks back: the next
    one may fail. And a peak at the limit that still grows: a run that was set up to fill the memory stays there, and
    is none of a pager's business."""
    peak, limit = "gradvane_device_memory_peak_bytes", "gradvane_device_memory_limit_bytes"
    retries = "gradvane_device_allocation_retries_total"

    def ranks(*run: str) -> str:
        share = f"{selector(peak, *run)} / ({selector(limit, *run)} > 0) > {windows.memory_share}"
        grown = f"delta({selector(peak, *run)}[{windows.memory_growth}]) > 0"
        retried = (f"increase({selector(retries, *run)}[{windows.memory_retries}]) >= 3"
                   f" and {selector(retries, *run)} >= 0")  # the process is alive
        return f"(({share}) and {grown})\nor\n({retried})"

    return Alert(
        "GradvaneDeviceMemoryNearLimit", "warning", "A training run is about to run out of device memory",
        of_run(ranks()),
        (f"{WHO} the device memory is near its limit.", first_rank(ranks(*SAME)),
         number(f"max({selector(peak, *SAME)} / ({selector(limit, *SAME)} > 0))",
                "Tensors have held up to {} of it.", "humanizePercentage"),
         number(f"max(increase({selector(retries, *SAME)}[{windows.memory_retries}])) > 0",
                f"Allocations retried on one rank in {windows.memory_retries}: {{}}.")),
        hold=windows.memory_for)


def replicas_diverged(windows: Windows) -> Alert:
    """Only for ranks whose weights once had the same norm: then they are replicas. Pipeline stages and shards differ
    from the start. Scrapes meet the ranks at different steps, so a small difference is no evidence. One rank alone has
    the norm that it has itself, which is no evidence either."""
    norms = "(gradvane_weight_norm)"
    each = f"by ({OF_RUN}, optimizer)"
    spread = (f"((max {each} {norms} - min {each} {norms}) / (max {each} {norms} > 0)"
              f" and count {each} {norms} > 1)")
    return Alert(
        "GradvaneReplicasDiverged", "critical", "Replicas of a model have different weights",
        f"max by ({OF_RUN}) (\n{spread} > {windows.diverged_share}\n"
        f"and min_over_time({spread}[{windows.diverged_memory}:10m]) < {windows.same_share}\n)",
        (f"{RUN} the weight norms of its ranks were equal and are now {{{{ $value | humanizePercentage }}}} apart.",
         number(f"max({selector('gradvane_weight_norm', *SAME)})", "Largest: {}.", 'printf "%.4g"'),
         number(f"min({selector('gradvane_weight_norm', *SAME)})", "Smallest: {}.", 'printf "%.4g"')),
        hold=windows.diverged_for)
