"""Synthetic runs with the answers that the agent would give about them; the same step, the same numbers."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

KEPT_STEPS = 4096
MAX_POINTS = 1024
SITES = ("loss", "grad", "weight")
NO_COUNTS = {"nan": 0, "pos_inf": 0, "neg_inf": 0}
START = 1_763_800_000.0
API = Path(__file__).resolve().parents[2] / "docs/api"
TENSOR_NUMBERS = tuple(json.loads((API / "heatmap.schema.json").read_text())["properties"]["value"]["enum"])
"""of a group and of a parameter"""
STEP_NUMBERS = tuple(re.findall(r"[a-z_]+", json.loads((API / "history.schema.json").read_text())
                                ["properties"]["series"]["propertyNames"]["pattern"].split("|user")[0]))


def noise(step: int, seed: int = 0) -> float:
    """From -1 to 1, and always the same for the same step."""
    value = math.sin(step * 12.9898 + seed * 78.233) * 43758.5453
    return 2 * (value - math.floor(value)) - 1


@dataclass
class MockRun:
    """What a run is like. `step` is where it has come to; advance it by hand, or let `rate` do it."""

    name: str = "char_gpt"
    layers: int = 12
    params_per_layer: int = 4
    step: int = 600
    rate: float = 0.0
    state: str = "running"
    reason: str = ""
    recording: str = ""
    world_size: int = 1
    is_empty: bool = False
    #: (first, last) steps with NaN; the loss of all but the first is NaN too.
    bad: list[tuple[int, int]] = field(default_factory=list)
    #: Steps with a loss spike.
    spikes: tuple[int, ...] = ()
    pid: int = 4242
    started: float = START
    has_syncs: bool = True
    optimizers: tuple[str, ...] = ("AdamW",)
    #: The one that stepped first.
    leading: int = 0

    def __post_init__(self) -> None:
        self._base = self.step
        self._clock = time.monotonic()

    def advance(self, steps: int) -> None:
        self.step = self.step + steps
        self._base = self.step
        self._clock = time.monotonic()

    def tick(self) -> int:
        """The step it has come to by now."""
        if self.rate and self.state == "running" and not self.recording:
            self.step = self._base + int(self.rate * (time.monotonic() - self._clock))
        return 0 if self.is_empty else self.step

    @property
    def seconds_per_step(self) -> float:
        return 1 / self.rate if self.rate else 0.08

    def time_of(self, step: int) -> float:
        return self.started + step * self.seconds_per_step

    def is_bad(self, step: int, site: str) -> bool:
        if site == "grad":
            return any(first <= step <= last for first, last in self.bad)
        return any(first < step <= last for first, last in self.bad)

    # One step

    def series(self, step: int, optimizer: int = 0) -> dict[str, float | None]:
        decay = 4.2 * math.exp(-step / 900) + 1.1
        norm = 0.6 + 2 * math.exp(-step / 200) + 0.25 * abs(noise(step, 1)) ** 3 * 4
        after = min(norm, 1.0)
        seconds = self.seconds_per_step * (1 + 0.15 * abs(noise(step, 2)))
        bad_loss, bad_weight = self.is_bad(step, "loss"), self.is_bad(step, "weight")
        weighed = step % 50 == 0
        joined = [key for key in TENSOR_NUMBERS if key in STEP_NUMBERS]
        return dict.fromkeys(joined, norm * 0.002) | {
            "loss": None if bad_loss else (decay + 0.08 * noise(step, 3) + 100 * optimizer) * (3.2 if step in self.spikes else 1),
            "grad_norm": None if self.is_bad(step, "grad") and bad_loss else norm,
            "grad_norm_at_step": None if self.is_bad(step, "grad") and bad_loss else after,
            "clip_coefficient": after / norm,
            "grad_abs_max": norm * 0.04,
            "grad_abs_min_nonzero": 1e-9 * norm,
            "grad_zero_ratio": 0.02 + 0.01 * abs(noise(step, 4)),
            "grad_subnormal_ratio": 0.001 * abs(noise(step, 6)),
            "weight_norm": 40 + step * 0.002 if weighed and not bad_weight else None,
            "update_ratio": 0.0012 * (1 + 0.2 * noise(step, 5)) if weighed and not bad_weight else None,
            "lr": 3e-4 * min(1, step / 100) * (0.5 + 0.5 * math.cos(min(1, step / 5000) * math.pi)),
            "step_seconds": seconds,
            "agent_seconds": seconds * 0.006,
            "host_syncs": 2 + (step % 10 == 0),
            "host_sync_seconds": seconds * 0.1,
            "process_resident_bytes": 1.4e9 + step * 2000,
            "tokens_per_second": 8192 / seconds,
            "user.accuracy": 1 - decay / 6,
        }

    # Answers

    def head(self) -> dict:
        return {"run": self.name, "rank": 0, "started": self.started}

    def steps_per_point(self, step: int) -> int:
        size = 1
        while step / size > MAX_POINTS:
            size *= 2
        return size

    def history(self, resolution: str, since: int, limit: int = KEPT_STEPS, optimizer: int | None = None) -> dict:
        optimizer = self.leading if optimizer is None else optimizer
        newest = self.tick()
        size = 1 if resolution == "steps" else self.steps_per_point(newest)
        if size == 1 and resolution == "steps":
            start = max(since, newest - min(limit, KEPT_STEPS), 0)
        else:
            start = max(0, since // size * size)
        first, last = [], []
        for begin in range(start + 1, newest + 1, size):
            end = min(begin + size - 1, newest)
            if end > since:
                first.append(begin)
                last.append(end)
        names = list(self.series(1)) if newest else []
        tracks: dict[str, dict[str, list]] = {name: {"last": [], "min": [], "max": []} for name in names}
        nonfinite: dict[str, list[int]] = {site: [] for site in SITES}
        for begin, end in zip(first, last):
            # A few steps stand for all of a long point; the bad ones are counted exactly.
            stride = max(1, (end - begin + 1) // 8)
            weighed = end // 50 * 50
            chosen = {*range(begin, end + 1, stride), *([weighed] if weighed >= begin else [])}
            sample = [self.series(step, optimizer) for step in sorted(chosen)]
            for name, track in tracks.items():
                known = [values[name] for values in sample if values[name] is not None]
                track["last"].append(known[-1] if known else None)
                track["min"].append(min(known) if known else None)
                track["max"].append(max(known) if known else None)
            for site in SITES:
                nonfinite[site].append(self.bad_between(begin, end, site))
        if resolution == "steps":
            for track in tracks.values():
                del track["min"], track["max"]
        following = (last[-1] if resolution == "steps" else first[-1] - 1) if first else since
        return {**self.head(), "resolution": resolution, "optimizer": optimizer, "steps_per_point": size, "since": since,
                "next": following, "first": first, "last": last, "time": [self.time_of(s) for s in last],
                "series": tracks, "nonfinite": nonfinite, "skipped": [0] * len(first)}

    def bad_between(self, begin: int, end: int, site: str) -> int:
        shift = 0 if site == "grad" else 1
        return sum(max(0, min(end, last) - max(begin, first + shift) + 1) for first, last in self.bad)

    @property
    def groups(self) -> list[str]:
        if self.is_empty:
            return []
        return ["embed", *[f"layers.{i}" for i in range(self.layers)], "head"]

    def param_names(self) -> list[tuple[str, str]]:
        """(name, group), in module order."""
        if self.is_empty:
            return []
        kinds = ["attn.qkv.weight", "attn.out.weight", "mlp.in.weight", "mlp.out.weight"]
        names = [("embed.weight", "embed")]
        for layer in range(self.layers):
            for i in range(self.params_per_layer):
                kind = kinds[i] if i < len(kinds) else f"experts.{i - len(kinds)}.weight"
                names.append((f"layers.{layer}.{kind}", f"layers.{layer}"))
        return [*names, ("head.weight", "head")]

    @property
    def culprit(self) -> str:
        return f"layers.{min(3, self.layers - 1)}.attn.qkv.weight"

    def cell(self, value: str, row: int, step: int) -> float | None:
        wave = 1 + 0.3 * noise(step // 8, row) + 0.2 * math.sin(step / 90 + row)
        if value in ("weight_norm", "update_ratio") and step % 50 >= self.steps_per_point(self.step):
            return None
        depth = row % 16
        scales = {"grad_norm": 0.3 * math.exp(-depth * 0.35) * (1 + 3 * math.exp(-step / 200)),
                  "grad_abs_max": 0.01 * math.exp(-depth * 0.35), "grad_abs_min_nonzero": 1e-9,
                  "grad_zero_ratio": 0.04 * (row % 7 + 1), "grad_subnormal_ratio": 0.001 * (row % 5),
                  "weight_norm": 8.0 + row % 9, "update_ratio": 0.001 * (1 + row % 4)}
        return scales.get(value, 0.002) * max(wave, 0.05)

    def heat_map(self, rows: str, value: str, group: str, search: str, since: int, limit: int) -> dict:
        newest = self.tick()
        if rows == "groups":
            names = [(name, name) for name in self.groups]
        else:
            names = [(name, of) for name, of in self.param_names()
                     if (not group or of == group) and search.lower() in name.lower()]
        size = self.steps_per_point(newest)
        points = [(begin, min(begin + size - 1, newest)) for begin in range(1, newest + 1, size)]
        points = [(begin, end) for begin, end in points if end > since]
        shown = names[:limit]
        bad_rows = [i for i, (name, of) in enumerate(shown)
                    if self.culprit == name or self.culprit.startswith(f"{name}.")]
        nonfinite = [[row, i, count] for row in bad_rows for i, (begin, end) in enumerate(points)
                     if (count := self.bad_between(begin, end, "grad"))]
        return {**self.head(), "rows": rows, "value": value, "steps_per_point": size, "since": since,
                "next": points[-1][0] - 1 if points else since,
                "first": [p[0] for p in points], "last": [p[1] for p in points],
                "time": [self.time_of(p[1]) for p in points], "total": len(names), "matched": len(names),
                "names": [name for name, _ in shown],
                "values": [[self.cell(value, row, end) for _, end in points] for row in range(len(shown))],
                "nonfinite": nonfinite}
