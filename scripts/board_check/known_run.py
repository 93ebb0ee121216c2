"""A run of four ranks whose numbers are known, half an hour of it, scraped every 15 seconds.

    minute  1     it starts (minutes after BEGIN)
            5, 9, 17   the gradient scaler overflows
            6, 11, 16, 21, 26   checkpoints, of which rank 0 tells
            7     the profiler takes the place of the host-sync counter on rank 0, for a minute
            10    one scrape of rank 3 fails
            13    NaN in a gradient; then weights and losses; at 14 the loop goes back to its checkpoint
            16    somebody asks a tensor in the forward pass: four more host syncs a step, over the budget
            20    the data loader of rank 3 becomes slow, and all ranks wait for it
            24    the gradient of blocks.5 grows; at 27 its norm is an incident, at 28.5 the loss diverges
"""

from __future__ import annotations

import calendar
import math
import re
from pathlib import Path

from alert_rules.agent_tables import CLASSES
from board_check import known_syncs
from board_check.known_shapes import Course, Known, bent, between, counted, flat, held, noise, only, stairs
from board_check.known_shapes import steady, while_between

BEGIN = calendar.timegm((2026, 11, 1, 12, 1, 0))
END = BEGIN + 1800
SCRAPE = 15
STARTED = 60
"""seconds after BEGIN. The times below are since then."""
UUID = "GPU-5d1b7a2e-0c4f-4b6a-9e1d-7f30c2a8b40"
"""without its last digit, which is the rank"""
ATTEMPT = "20261101T120200-9f3c"
"""of the run that is described below"""
RUN, TWO, TUNED, JOB, RANKS = "gpt-small", "gan", "gpt-tuned", "training", 4
GROUPS = ("embed", *(f"blocks.{block}" for block in range(8)), "ln_f", "head")
KINDS = ("nan", "pos_inf", "neg_inf")
SITES = ("loss", "grad", "weight")
PARAM = "blocks.4.attention.qkv.weight"
NUMBERS = Path(__file__).resolve().parents[2] / "docs/numbers.md"


def minute(value: float) -> float:
    """Of the clock above, as seconds since the start."""
    return value * 60 - STARTED


SLOW = minute(20)
BAD, LOSS_BAD, MENDED = minute(13), minute(13.25), minute(14)
GROWS = minute(24)
STEPS = bent(2.0, SLOW, 1.6)
"""steps a second: 2, and 1.6 once the loader is slow"""
BAD_STEP = 1 + 2 * int(BAD)
OPENED = {"nonfinite_grad": (BAD, MENDED), "sync_budget": (minute(16), math.inf),
          "grad_exploding": (minute(27), math.inf), "loss_divergence": (minute(28.5), math.inf)}
INFO = {
    "nonfinite_grad": dict(step=str(BAD_STEP), site="grad", kind="nan", param=PARAM, element="1311",
                           group="blocks.4", began_in="backward", module="blocks.4.attention"),
    "sync_budget": dict(step="1800"),
    "grad_exploding": dict(step="2952", site="grad"),
    "loss_divergence": dict(step="3096", site="loss"),
}


def per_step(amount: float, after: float | None = None) -> Course:
    """A counter that grows by so much in each step, from SLOW on by `after`."""
    return bent(2.0 * amount, SLOW, 1.6 * (amount if after is None else after))


def loss(rank: int) -> Course:
    def value(t: float) -> float:
        broken = 0.9 * max(0.0, (t - minute(28)) / 60) ** 2
        return 2.1 + 7.5 * math.exp(-t / 260) + 0.05 * noise(t, rank) + broken
    return held(value, LOSS_BAD, MENDED)


def norm(group: str) -> Course:
    """Falls slowly; that of blocks.5 doubles every 45 seconds in the end."""
    index = GROUPS.index(group)
    level = {"embed": 0.03, "ln_f": 0.008, "head": 0.6}.get(group, 0.12 + 0.03 * index)

    def value(t: float) -> float:
        grown = 2 ** (max(0.0, t - GROWS) / 45) if group == "blocks.5" else 1 + max(0.0, t - GROWS) / 900
        return level * (0.5 + 0.5 * math.exp(-t / 400)) * (1 + 0.15 * noise(t, index)) * grown
    return held(value, BAD, MENDED)


def total_norm(t: float) -> float:
    values = (norm(group)(t) for group in GROUPS)
    return math.sqrt(sum(value * value for value in values if value is not None))


def warm_up(rate: float) -> Course:
    return lambda t: rate * min(1.0, (t + 15) / 240)


def small_numbers(prefix: str) -> dict[str, Course]:
    """Every metric of docs/numbers.md that begins so: for those that no course of their own is written for."""
    return {metric: flat(0.002) for metric in re.findall(rf"`({prefix}\w+)`", NUMBERS.read_text(encoding="utf-8"))}


def gradients(rank: int) -> dict[str, Course]:
    found: dict[str, Course] = {
        "gradvane_loss": loss(rank), "gradvane_grad_norm": total_norm,
        "gradvane_grad_norm_at_step": lambda t: min(1.0, total_norm(t)),
        "gradvane_clip_coefficient": lambda t: min(1.0, 1.0 / total_norm(t)),
        "gradvane_grad_abs_max": lambda t: 0.08 * total_norm(t),
        "gradvane_grad_abs_min_nonzero": lambda t: 1e-9 * (1 + 0.2 * noise(t, rank)),
        "gradvane_grad_subnormal_ratio": lambda t: 0.002 + 0.0005 * noise(t, rank),
        "gradvane_grad_zero_ratio": lambda t: 0.11 + 0.004 * noise(t, rank),
        "gradvane_weight_norm": lambda t: 118 + t / 180,
        "gradvane_update_ratio": lambda t: 0.0011 + 0.0003 * math.exp(-t / 300),
        "gradvane_grad_health": lambda t: 0.94 - 0.5 * max(0.0, min(1.0, (t - GROWS) / 240)) + 0.01 * noise(t, rank),
        "gradvane_shard_grad_norm": lambda t: total_norm(t) / 2,
        "gradvane_params_vanishing": flat(2), "gradvane_params_exploding": stairs((0, 0), (minute(27), 6)),
        "gradvane_loss_scale": stairs((0, 65536), (minute(5), 32768), (minute(9), 16384), (minute(12), 32768),
                                      (minute(17), 16384), (minute(22), 32768)),
    }
    return small_numbers("gradvane_grad_") | found


def process(rank: int) -> dict[str, Course]:
    """What has no label of its own."""
    return gradients(rank) | {
        "gradvane_run_start_timestamp_seconds": flat(BEGIN + STARTED),
        "gradvane_steps_total": STEPS, "gradvane_micro_steps_total": per_step(2),
        "gradvane_run_step": lambda t: math.floor(STEPS(t) or 0),
        "gradvane_last_step_timestamp_seconds": lambda t: BEGIN + STARTED + t,
        "gradvane_tokens_total": per_step(8192), "gradvane_samples_total": per_step(8),
        "gradvane_rank_wait_seconds_total": per_step(0.05, 0.05 if rank == RANKS - 1 else 0.17),
        "gradvane_step_duration_seconds_sum": steady(1.0), "gradvane_step_duration_seconds_count": STEPS,
        "gradvane_amp_overflow_steps_total": counted(minute(5), minute(9), minute(17)),
        "gradvane_process_resident_memory_bytes": lambda t: 6.0e9 + 2e5 * t + 5e7 * rank,
        "gradvane_device_memory_allocated_bytes": lambda t: 38.5e9 + 2e8 * noise(t, rank),
        "gradvane_device_memory_reserved_bytes": flat(44.5e9), "gradvane_device_memory_peak_bytes": flat(41.2e9),
        "gradvane_device_memory_limit_bytes": flat(85.0e9),
        "gradvane_device_allocation_retries_total": counted(minute(15)),
        "gradvane_device_out_of_memory_total": flat(0),
        "gradvane_model_flops_utilization_ratio": while_between(SLOW, math.inf, 0.336, 0.42),
        "gradvane_plan_rebuilds_total": flat(0), "gradvane_contiguous_copies_total": per_step(1),
        "gradvane_nonfinite_values_refused_total": between(LOSS_BAD, MENDED, 4),
        "gradvane_series": flat(420), "gradvane_series_limit": flat(2000), "gradvane_series_dropped_total": flat(0),
        "gradvane_user_families_dropped_total": flat(0),
        "gradvane_scrapes_total": steady(1 / 15), "gradvane_scrape_seconds_total": steady(0.003 / 15),
    }


def labelled(rank: int) -> list[Known]:
    """What has."""
    def known(metric: str, course: Course, **labels: str) -> Known:
        return Known(metric, labels, course)

    slow = rank == RANKS - 1
    phases = {"data": (0.05, 0.175 if slow else 0.05), "forward": (0.12, 0.12),
              "backward": (0.25, 0.25 if slow else 0.375), "optimizer": (0.05, 0.05), "other": (0.03, 0.03)}
    found = [known("gradvane_run_info", flat(1), world_size="4", local_rank=str(rank % 2), torch="2.11.0",
                   run_id=ATTEMPT),
             known("gradvane_world_size", flat(4)), known("gradvane_build_info", flat(1), version="0.1.0"),
             known("gradvane_device_info", flat(1), device="cuda:0", name="NVIDIA H100 80GB HBM3", uuid=UUID + str(rank))]
    found += [known("gradvane_run_state", flat(state == "running"), state=state)
              for state in ("starting", "running", "stalled", "finished", "failed")]
    # Nine steps in ten take up to half a second; four in ten once the loader is slow.
    for le, before, after in (("0.2", 0, 0), ("0.5", 0.9, 0.4), ("1", 1, 1), ("+Inf", 1, 1)):
        found.append(known("gradvane_step_duration_seconds_bucket", per_step(before, after), le=le))
    found += [known("gradvane_phase_seconds_total", per_step(*both), phase=phase) for phase, both in phases.items()]
    found += [known("gradvane_learning_rate", warm_up(rate), optimizer="0", param_group=name)
              for name, rate in (("0", 6e-4), ("1", 6e-5))]
    found += [known("gradvane_params", course, state=state) for state, course in (
        ("finite", stairs((0, 98), (BAD, 58), (MENDED, 98))), ("nonfinite", stairs((0, 0), (BAD, 40), (MENDED, 0))),
        ("frozen", flat(2)), ("missing", flat(0)), ("empty", flat(0)), ("zero", flat(0)), ("unsupported", flat(0)))]
    for group in GROUPS:
        found += of_group(group)
    for site in SITES:
        bad = between(BAD if site == "grad" else LOSS_BAD, MENDED, 8.0 if site == "grad" else 2.0)
        found.append(known("gradvane_site_reads_total", per_step(0.02 if site == "weight" else 1), site=site))
        found += [known("gradvane_nonfinite_elements_total", bad if kind == "nan" else flat(0), site=site, kind=kind)
                  for kind in KINDS]
        for group in (("loss",) if site == "loss" else (*GROUPS, "unknown")):
            first = BAD if group == "blocks.4" and site == "grad" else LOSS_BAD
            steps = between(first, MENDED, 2.0)
            if group in ("loss", "unknown"):
                found += [known("gradvane_nonfinite_steps_total",
                                steps if kind == "nan" and group == "loss" else flat(0), site=site, kind=kind,
                                group=group) for kind in KINDS]
            else:  # born with its first bad step, and not at 0
                found.append(known("gradvane_nonfinite_steps_total", only(steps, first + 1), site=site, kind="nan",
                                   group=group))
    found += [known("gradvane_skipped_steps_total", course, reason=reason) for reason, course in (
        ("amp_overflow", counted(minute(5), minute(9), minute(17))), ("loop", between(LOSS_BAD, MENDED, 2.0)))]
    found += snapshots()
    for name in CLASSES:
        start, end = OPENED.get(name, (math.inf, math.inf))
        found.append(known("gradvane_incidents_total", counted(start), **{"class": name}))
        found.append(known("gradvane_incidents_open", while_between(start, end), **{"class": name}))
        if name in INFO:
            keys = ("step", "site", "kind", "param", "element", "group", "began_in", "module")
            labels = {key: INFO[name].get(key, "") for key in keys}
            found.append(known("gradvane_incident_info", only(flat(1), start), **{"class": name}, **labels))
    found += agent()
    if rank == 0:
        found.append(known("gradvane_user_metric", lambda t: 0.62 - 0.4 * math.exp(-t / 500), name="accuracy"))
        found.append(known("gradvane_user_metric", stairs(
            *((minute(at), BEGIN + STARTED + minute(at)) for at in (6, 11, 16, 21, 26))),
            name="checkpoint_timestamp_seconds"))
    return found


def snapshots() -> list[Known]:
    """One each hundred steps, but for the time in which the state is bad. Then it goes back to the last."""
    results = {"committed": per_step(0.01), "incident": between(BAD, MENDED, 2.0)}
    names = "committed incident nonfinite memory unsupported capturing written threads failed"
    found = [Known("gradvane_snapshots_total", {"result": name}, results.get(name, flat(0))) for name in names.split()]
    found += [Known("gradvane_rollbacks_total", {"reason": name}, counted(MENDED) if name == "nonfinite" else flat(0))
              for name in "nonfinite divergence skips_in_a_row requested".split()]
    age = Known("gradvane_snapshot_age_seconds", {},
                lambda t: t - minute(12.5) if BAD <= t < MENDED else ((STEPS(t) or 0.0) % 100) / 2)
    return [*found, age, Known("gradvane_ranks_agree", {}, flat(1))]


def of_group(group: str) -> list[Known]:
    index = GROUPS.index(group)
    ratio = {"embed": 3e-4, "head": 4.2e-3, "ln_f": 2e-3}.get(group, 8e-4 + 1e-4 * index)
    zeros = 0.62 if group == "embed" else 0.01 * index
    course = norm(group)
    courses: dict[str, Course] = small_numbers("gradvane_group_") | {
        "gradvane_group_grad_norm": course,
        "gradvane_group_grad_abs_max": lambda t: 0.08 * (course(t) or 0.0),
        "gradvane_group_grad_abs_min_nonzero": flat(1e-9),
        "gradvane_group_grad_zero_ratio": flat(zeros),
        "gradvane_group_grad_subnormal_ratio": flat(zeros / 50),
        "gradvane_group_weight_norm": lambda t: (12 + 3 * index) * (1 + t / 20000),
        "gradvane_group_update_ratio": lambda t: ratio * (1 + 0.5 * math.exp(-t / 300) + 0.05 * noise(t, index)),
    }
    return [Known(metric, {"group": group}, course) for metric, course in courses.items()]


def agent() -> list[Known]:
    found = [Known("gradvane_agent_seconds_total", {"where": where}, steady(rate))
             for where, rate in (("hooks", 0.004), ("worker", 0.021), ("http", 0.0004))]
    for metric, label, values in (
            ("gradvane_records_dropped_total", "reason", "ring_overrun read_lost user_metric_limit"),
            ("gradvane_export_failures_total", "exporter",
             "prometheus status_board step_log flight_recorder alert_push"),
            ("gradvane_alert_pushes_total", "result", "ok failed"),
            ("gradvane_http_connections_dropped_total", "reason", "limit header_deadline write_deadline")):
        found += [Known(metric, {label: value}, flat(0)) for value in values.split()]
    found += [Known("gradvane_recordings_total", {"result": "ok"}, counted(*(start for start, _ in OPENED.values()))),
              Known("gradvane_recordings_total", {"result": "failed"}, flat(0))]
    found += [Known("gradvane_http_requests_total", {"code": code}, steady(1 / 15 if code == "200" else 0))
              for code in "200 400 404 405 413 431 500 503".split()]
    return found


def target(rank: int) -> dict[str, str]:
    return {"job": JOB, "instance": f"node-{'ab'[rank // 2]}:{9464 + rank % 2}"}


def alerts() -> list[Known]:
    """As the shipped rules would have told, on the whole; the rules have tests of their own."""
    fired = (("GradvaneTrainingNonFinite", "critical", minute(13.25), minute(28.25)),
             ("GradvaneHostSyncBudgetExceeded", "warning", minute(16.25), math.inf),
             ("GradvaneGradientNormExploding", "warning", minute(27.25), math.inf),
             ("GradvaneLossDiverging", "warning", minute(28.75), math.inf))
    return [Known("ALERTS", {"alertname": name, "alertstate": "firing", "severity": severity,
                             "component": "gradvane", "run": RUN, "job": JOB}, only(flat(1), start, end))
            for name, severity, start, end in fired]


def other_run() -> list[Known]:
    """Another run in the same Prometheus, with numbers that would be seen if they got into a panel."""
    labels = {"job": JOB, "instance": "node-c:9464", "run": "gpt-other", "rank": "0"}
    return [Known("gradvane_run_info", {**labels, "world_size": "1", "local_rank": "0", "torch": "2.11.0"}, flat(1)),
            Known("up", {"job": JOB, "instance": "node-c:9464"}, flat(0)),
            Known("gradvane_loss", labels, flat(1e6)), Known("gradvane_grad_norm", labels, flat(1e6)),
            Known("gradvane_run_step", labels, flat(1e9)), Known("gradvane_steps_total", labels, steady(1e3)),
            Known("gradvane_group_grad_norm", {**labels, "group": "alien"}, flat(1e6)),
            Known("gradvane_incidents_open", {**labels, "class": "stalled"}, flat(1)),
            Known("gradvane_host_syncs_total", {**labels, "kind": "device", "origin": "training"}, steady(1e4))]


def run_of_two_optimizers() -> list[Known]:
    """Another one, whose numbers say of which optimizer they are."""
    labels = {"job": JOB, "instance": "node-d:9464", "run": TWO, "rank": "0"}
    return [Known(metric, {**labels, "optimizer": str(optimizer)}, flat(10.0 + optimizer))
            for metric in gradients(0) for optimizer in range(2)]


TUNED_BEGAN = minute(6)
TUNED_STEPS = 4.0
"""per second"""


def tuned_run() -> list[Known]:
    """One to compare with: it begins later, makes twice as many steps, and its numbers follow from its step."""
    def step(t: float) -> int:
        return math.floor(TUNED_STEPS * (t - TUNED_BEGAN))

    def counter(amount: float) -> Course:
        return lambda t: amount * TUNED_STEPS * (t - TUNED_BEGAN)

    courses: dict[str, Course] = {
        "gradvane_run_step": lambda t: float(step(t)),
        "gradvane_loss": lambda t: 1.7 + 7.8 * math.exp(-step(t) / 900),
        "gradvane_grad_norm": lambda t: 0.3 + 0.9 * math.exp(-step(t) / 1200),
        "gradvane_update_ratio": lambda t: 6e-4 + 8e-4 * math.exp(-step(t) / 1500),
        "gradvane_step_duration_seconds_sum": counter(0.25), "gradvane_step_duration_seconds_count": counter(1.0),
        "gradvane_tokens_total": counter(4096)}
    found = [Known(metric, {}, course) for metric, course in courses.items()]
    found.append(Known("gradvane_run_info", {"world_size": "1", "local_rank": "0", "torch": "2.11.0"}, flat(1)))
    found += [Known("gradvane_incidents_total", {"class": name}, flat(float(name == "loss_spike"))) for name in CLASSES]
    found += [Known("gradvane_learning_rate", {"optimizer": "0", "param_group": name}, flat(rate))
              for name, rate in (("0", 3e-4), ("1", 3e-5))]
    mine = {"job": JOB, "instance": "node-e:9464", "run": TUNED, "rank": "0"}
    return [Known(part.metric, {**mine, **part.labels}, only(part.course, TUNED_BEGAN)) for part in found]


def gpus() -> list[Known]:
    """As dcgm-exporter publishes them: a GPU of each rank, and one that is nobody's."""
    found = []
    for number, uuid in enumerate([*(UUID + str(rank) for rank in range(RANKS)), "GPU-nobodys"]):
        labels = {"job": "dcgm", "instance": f"node-{'abc'[number // 2]}:9400", "gpu": str(number % 2), "UUID": uuid,
                  "modelName": "NVIDIA H100 80GB HBM3"}
        found += [Known(metric, labels, flat(value + number * apart)) for metric, value, apart in (
            ("DCGM_FI_DEV_GPU_UTIL", 90.0, 1.0), ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.4, 0.02),
            ("DCGM_FI_DEV_POWER_USAGE", 600.0, 10.0), ("DCGM_FI_DEV_GPU_TEMP", 60.0, 1.0))]
    return found


def known_series() -> list[Known]:
    """All of it, with the labels that scraping adds."""
    found = alerts() + other_run() + run_of_two_optimizers() + tuned_run() + gpus()
    for rank in range(RANKS):
        mine = {**target(rank), "run": RUN, "rank": str(rank)}
        parts = [Known(metric, {}, course) for metric, course in process(rank).items()]
        parts += labelled(rank) + known_syncs.series(rank, per_step, minute)
        found += [Known(part.metric, {**mine, **part.labels}, only(part.course, 0)) for part in parts]
        missed = minute(10) if rank == RANKS - 1 else math.inf
        found.append(Known("up", target(rank), while_between(missed, missed + SCRAPE, 0.0, 1.0)))
    return found
