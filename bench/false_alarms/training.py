"""One healthy run, watched: how many steps, and which incidents it had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

import gradvane


class Run:
    """Counts its steps out and collects what the detectors say of them."""

    def __init__(self, steps: int, seed: int, **options: object) -> None:
        torch.manual_seed(seed)
        self.steps = steps
        self.incidents: Counter[str] = Counter()
        self.evidence: list[str] = []
        self._options = options

    def watch(self, model: torch.nn.Module, optimizers: object, **options: object) -> None:
        self._agent = gradvane.attach(  # type: ignore[call-overload]
            model, optimizers, port=-1, ring_slots=8192, detect="default,-agent_cost", cooldown_seconds=0,
            **{**self._options, **options})
        self._agent.on_incident(self._note)

    def _note(self, incident: gradvane.Incident) -> None:
        if incident.closed_at is not None:
            return
        self.incidents[incident.kind] += 1
        self.evidence.append(f"{incident.kind}: {incident.evidence}")

    def __iter__(self) -> Iterator[int]:
        yield from range(self.steps)

    def end(self) -> None:
        self._agent.detach()
