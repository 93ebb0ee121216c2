"""The options of attach() and `gradvane run`. docs/configuration.md says what each means."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

Path = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """What attach() takes by keyword: the keys of every other way to configure Gradvane."""

    enabled: bool
    run: str
    run_id: str
    config: Path
    run_dir: Path
    address: str
    token: str
    web_config: str
    insecure: bool
    allowed_hosts: str | Iterable[str]
    port: int
    share_port: bool
    mode: Literal["lagged", "immediate"]
    weight_every: int
    update_sample: int
    groups: str | Mapping[str, str]
    max_groups: int
    group_series: Literal["auto", "all", "local0", "rank0"]
    max_series: int
    vanishing_threshold: float
    exploding_threshold: float
    ring_slots: int
    history_steps: int
    step_log: Path
    step_log_max_bytes: int
    stall_seconds: float
    stall_pause_seconds: float
    linger_seconds: float
    linger_incident_seconds: float
    expect_scraper: bool
    start_step: int
    rank: int
    local_rank: int
    world_size: int
    flops_per_token: float
    peak_flops: float
    sync: Literal["off", "auto", "require"]
    sync_budget: int
    sync_budget_after: int
    sync_threshold_us: int
    sync_profiler: Literal["auto", "gate", "yield", "share"]
    sync_library: Path
    sync_report: Path
    detect: str | Iterable[str]
    cooldown_seconds: float
    loss_window: int
    loss_sigma: float
    loss_ratio: float
    loss_absolute: float
    loss_in_a_row: int
    random_guess_loss: float
    exploding_factor: float
    vanishing_share: float
    drift_threshold: float
    dead_after: int
    overflow_streak: int
    cost_budget: float
    on_nonfinite: Literal["watch", "skip", "stop", "rollback"]
    on_divergence: Literal["watch", "stop", "rollback"]
    skip_limit: int
    skip_norm: float
    skip_on_device: bool
    found_inf_for_scaler: bool
    snapshot_every: int
    snapshot_seconds: float
    snapshot_budget: float
    rollback_limit: int
    rollback_window: int
    rollback_optimizer: Literal["restore", "reset", "keep"]
    rollback_lr_factor: float
    rollback_device_sync: bool
    ranks: Literal["off", "agree"]
    check_before_reduction: bool
    compare_replicas_every: int
    alertmanager_url: str
    alertmanager_http_config: str
    alertmanager_labels: str | Mapping[str, str]
    recorder: bool
    recorder_dir: Path
    recorder_steps: int
    recorder_memory_bytes: int
    recorder_disk_bytes: int
    recorder_kept: int
    recorder_signal: Literal["none", "usr1", "usr2"]
    trace_nonfinite: Literal["off", "next_step", "always"]
    norm_exchange: Literal["auto", "off"]
    handle_sigterm: bool


KEYS: tuple[str, ...] = tuple(Options.__annotations__)


def as_pairs(texts: Mapping[str, str]) -> list[str]:
    """As the native agent takes them: key=value."""
    return [f"{key}={text}" for key, text in texts.items()]


def as_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as every other way to configure Gradvane writes them. None: as if the option was not given.

    Raises ValueError for a set, which has no order, and if a part of a list or mapping contains the character that
    separates the parts.
    """
    return {key: _text(key, value) for key, value in options.items() if value is not None}


def _text(key: str, value: object) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    between = ";" if key == "groups" else ","
    if isinstance(value, Mapping):
        for name in value:
            if "=" in str(name):
                raise ValueError(f"{key}: the name '{name}' is not allowed, since '=' ends a name")
        return _joined(key, between, (f"{name}={_text(key, part)}" for name, part in value.items()))
    if isinstance(value, (set, frozenset)):
        raise ValueError(f"{key} = {value!r} is not allowed, since a set has no order; give a list")
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return _joined(key, between, (_text(key, part) for part in value))
    return str(value)


def _joined(key: str, between: str, parts: Iterable[str]) -> str:
    known = list(parts)
    for part in known:
        if between in part:
            raise ValueError(f"{key} = '{part}' is not allowed, since '{between}' separates its parts")
    return between.join(known)
