"""Recording rules: what dashboards ask for again and again. Named level:metric:operations.

The Fleet board asks for nothing but these where it has a value for each rank: with a thousand ranks, Prometheus would
take half a minute for the rates of all of them.
"""

from __future__ import annotations

from alert_rules.rule import Recording
from alert_rules.windows import Windows


def behind(windows: Windows) -> Recording:
    """How much a rank adds to each step, as a share of the median rank's step: 0.2 is a fifth. Its steps take longer,
    or, where ranks wait for each other and all steps take the same time, its data phase or its own work does."""
    w = windows.rate
    median = f"on (job, run) group_left () run:gradvane_step_duration_seconds:median_mean{w}"

    def added(seconds: str, way: str) -> str:
        usual = f"on (job, run) group_left () quantile by (job, run) (0.5, {seconds})"
        return f'label_replace(({seconds} - {usual})\n  / {median}, "way", "{way}", "", "")'

    ways = (added(f"run_rank:gradvane_step_duration_seconds:mean{w}", "step"),
            added(f"run_rank:gradvane_data_phase_seconds:per_step{w}", "data"),
            added(f"run_rank:gradvane_own_seconds:per_step{w}", "own"))
    return Recording(f"run_rank:gradvane_step:behind_ratio{w}", "max without (way) (\n" + "\nor\n".join(ways) + "\n)")


def recordings(windows: Windows) -> tuple[Recording, ...]:
    w = windows.rate
    mean = f"run_rank:gradvane_step_duration_seconds:mean{w}"
    steps = f"run_rank:gradvane_steps:rate{w}"
    training = 'origin="training"'
    return (
        Recording(steps, f"rate(gradvane_steps_total[{w}])"),
        Recording(mean, f"rate(gradvane_step_duration_seconds_sum[{w}])\n"
                        f"/ (rate(gradvane_step_duration_seconds_count[{w}]) > 0)"),
        Recording(f"run:gradvane_step_duration_seconds:median_mean{w}",
                  f"quantile by (job, run) (0.5, {mean} > 0)"),
        # 0.2: a fifth slower than the run's median rank.
        Recording(f"run_rank:gradvane_step_duration_seconds:excess_ratio{w}",
                  f"{mean}\n/ on (job, run) group_left ()\n"
                  f"run:gradvane_step_duration_seconds:median_mean{w}\n- 1"),
        Recording(f"run_rank:gradvane_data_phase_seconds:per_step{w}",
                  f'sum without (phase) (rate(gradvane_phase_seconds_total{{phase="data"}}[{w}]))\n'
                  f"/ (rate(gradvane_steps_total[{w}]) > 0)"),
        Recording(f"run_rank:gradvane_rank_wait_seconds:ratio_rate{w}",
                  f"rate(gradvane_rank_wait_seconds_total[{w}])\n"
                  f"/ (rate(gradvane_step_duration_seconds_sum[{w}]) > 0)"),
        # Of a step in which the rank does not wait for the others.
        Recording(f"run_rank:gradvane_own_seconds:per_step{w}",
                  f"{mean}\n- rate(gradvane_rank_wait_seconds_total[{w}])\n/ (rate(gradvane_steps_total[{w}]) > 0)"),
        behind(windows),
        Recording(f"run_rank:gradvane_agent_hooks_seconds:ratio_rate{w}",
                  f'sum without (where) (rate(gradvane_agent_seconds_total{{where="hooks"}}[{w}]))\n'
                  f"/ (rate(gradvane_step_duration_seconds_sum[{w}]) > 0)"),
        Recording(f"run_rank:gradvane_host_syncs:per_step{w}",
                  "sum without (kind, origin)\n"
                  f'(rate(gradvane_host_syncs_total{{{training},kind!="rejected_in_capture"}}[{w}]))\n'
                  f"/ (rate(gradvane_steps_total[{w}]) > 0)"),
        Recording(f"run_rank:gradvane_host_sync_seconds:ratio_rate{w}",
                  f"sum without (kind, origin) (rate(gradvane_host_sync_seconds_total{{{training}}}[{w}]))\n"
                  f"/ (rate(gradvane_step_duration_seconds_sum[{w}]) > 0)"),
        Recording(f"run_rank:gradvane_skipped_steps:ratio_rate{w}",
                  f"sum without (reason) (rate(gradvane_skipped_steps_total[{w}]))\n"
                  f"/ (rate(gradvane_steps_total[{w}]) > 0)"),
        Recording(f"run:gradvane_tokens:rate{w}", f"sum by (job, run) (rate(gradvane_tokens_total[{w}]))"),
        Recording("run:gradvane_ranks:count", "count by (job, run) (gradvane_run_info)"),
    )
