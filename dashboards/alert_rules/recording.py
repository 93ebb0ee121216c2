"""Recording rules: what dashboards ask for again and again. Named level:metric:operations."""

from __future__ import annotations

from alert_rules.rule import Recording
from alert_rules.windows import Windows


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
