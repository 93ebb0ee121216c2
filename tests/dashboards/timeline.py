"""Series of a pretended run, as promtool's rule tests write them: one sample every 30 seconds."""

from __future__ import annotations

from catalogue import catalogue

STEP = 30
Series = dict[str, str]


def during(*parts: tuple[float, object]) -> str:
    """(minutes, value) one after the other; None is no sample, `stale` the end of a series."""
    words = []
    for minutes, value in parts:
        count = round(minutes * 60 / STEP)
        if value is None:
            words.append(f"_x{count}")
        elif value == "stale":
            words += ["stale"] + ([f"_x{count - 1}"] if count > 1 else [])
        elif value == "NaN":
            words += ["NaN"] * count  # promtool knows no NaNx3
        else:
            words.append(f"{value}x{count - 1}")  # promtool: one and so many more
    return " ".join(words)


def rising(minutes: float, first: float, each: float) -> str:
    """A value that rises by `each` from sample to sample."""
    return f"{first:g}+{each:g}x{round(minutes * 60 / STEP) - 1}"


def target(rank: int, run: str = "gpt", job: str = "gradvane") -> dict[str, str]:
    return {"job": job, "instance": f"host-{rank}:9464", "run": run, "rank": str(rank)}


def name(metric: str, rank: int = 0, **labels: str) -> str:
    pairs = {**target(rank), **labels}
    return metric + "{" + ",".join(f'{key}="{value}"' for key, value in pairs.items()) + "}"


CLASSES = sorted(catalogue()["gradvane_incidents_total"]["class"])
STATES = "starting running stalled finished failed".split()
LENGTH = 60.0
"""minutes"""


def healthy(rank: int = 0, minutes: float = LENGTH) -> Series:
    """A process in which all is well: 10 steps in 30 seconds, three seconds each."""
    def flat(value: object) -> str:
        return during((minutes, value))

    series: Series = {
        f'up{{job="gradvane",instance="host-{rank}:9464"}}': flat(1),
        name("gradvane_run_info", rank, world_size="4", local_rank=str(rank), torch="2.11.0"): flat(1),
        name("gradvane_run_start_timestamp_seconds", rank): flat(100),
        name("gradvane_run_step", rank): rising(minutes, 10, 10),
        name("gradvane_steps_total", rank): rising(minutes, 10, 10),
        name("gradvane_last_step_timestamp_seconds", rank): rising(minutes, 0, 30),
        name("gradvane_step_duration_seconds_sum", rank): rising(minutes, 30, 30),
        name("gradvane_step_duration_seconds_count", rank): rising(minutes, 10, 10),
        name("gradvane_phase_seconds_total", rank, phase="data"): rising(minutes, 1, 1),
        name("gradvane_host_sync_seconds_total", rank, kind="d2h_read", origin="training"): rising(minutes, 3, 3),
        name("gradvane_host_sync_seconds_total", rank, kind="stream", origin="training"): rising(minutes, 2, 2),
        name("gradvane_host_syncs_total", rank, kind="d2h_read", origin="training"): rising(minutes, 20, 20),
        name("gradvane_sync_coverage_seconds_total", rank, state="covered"): rising(minutes, 30, 30),
        name("gradvane_sync_coverage_seconds_total", rank, state="blind"): flat(4),
        name("gradvane_sync_budget_breaches_total", rank, origin="training"): flat(7),
        name("gradvane_tokens_total", rank): rising(minutes, 1000, 1000),
        name("gradvane_agent_seconds_total", rank, where="hooks"): rising(minutes, 0.3, 0.3),
        name("gradvane_agent_seconds_total", rank, where="worker"): rising(minutes, 1, 1),
        name("gradvane_grad_norm", rank): flat(1.5),
        name("gradvane_loss", rank): flat(2.25),
        name("gradvane_loss_scale", rank): flat(64),
        name("gradvane_grad_health", rank): flat(0.125),
        name("gradvane_params_vanishing", rank): flat(3),
        # Now and then a scaler skips a step: that is its daily business.
        name("gradvane_amp_overflow_steps_total", rank): during((minutes / 2, 40), (minutes / 2, 41)),
        name("gradvane_skipped_steps_total", rank, reason="amp_overflow"):
            during((minutes / 2, 40), (minutes / 2, 41)),
        name("gradvane_skipped_steps_total", rank, reason="loop"): flat(2),
        name("gradvane_records_dropped_total", rank, reason="ring_overrun"): flat(0),
        name("gradvane_records_dropped_total", rank, reason="read_lost"): flat(0),
        name("gradvane_records_dropped_total", rank, reason="user_metric_limit"): flat(0),
        name("gradvane_export_failures_total", rank, exporter="step_log"): flat(0),
        name("gradvane_series_dropped_total", rank): flat(0),
        name("gradvane_series_limit", rank): flat(2000),
    }
    for state in STATES:
        series[name("gradvane_run_state", rank, state=state)] = flat(int(state == "running"))
    for which in CLASSES:
        series[name("gradvane_incidents_total", rank, **{"class": which})] = flat(0)
        series[name("gradvane_incidents_open", rank, **{"class": which})] = flat(0)
    for site, kind, group in (("loss", "nan", "loss"), ("grad", "nan", "head"), ("grad", "pos_inf", "head"),
                              ("grad", "nan", "blocks"), ("weight", "nan", "head")):
        series[name("gradvane_nonfinite_steps_total", rank, site=site, kind=kind, group=group)] = flat(0)
    return series


def ended(series: Series, after: float, minutes: float = LENGTH) -> Series:
    """The same, but the process is gone after so many minutes: every series is stale."""
    kept = round(after * 60 / STEP)
    return {key: cut(values, kept) + " stale" for key, values in series.items()}


def samples(values: str) -> list[str]:
    """promtool's notation, one word a sample."""
    words: list[str] = []
    for part in values.split():
        body, _, count = part.rpartition("x")
        if not body:
            words.append(part)
        elif body == "_":
            words += ["_"] * int(count)
        elif "+" in body[1:]:
            first, each = body.split("+")
            words += [f"{float(first) + float(each) * k:g}" for k in range(int(count) + 1)]
        else:
            words += [body] * (int(count) + 1)
    return words


def cut(values: str, kept: int) -> str:
    return " ".join(samples(values)[:kept])
