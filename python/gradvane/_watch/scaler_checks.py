"""GradScaler.step() with a fused optimizer takes what the agent's read has found, and reads no gradients for a check of
its own.

torch's check reads and writes every gradient, times one. The optimizer leaves out the step by itself, and divides by the
scale: nothing else of the scaler's work is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gradvane._torch_ops import undisturbed
from gradvane._watch.device_skips import is_torchs_fused
from gradvane._watch.events import contained

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.amp import GradScaler
    from torch.optim import Optimizer

    from gradvane._watch.known import Known
    from gradvane._watch.watcher import Watcher

_TORCHS = ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler", "torch.cpu.amp.grad_scaler")
"""Modules of the scalers that have this check. Those of shards ask other ranks too."""


class ScalerChecks:
    """Of one agent."""

    def __init__(self, native: Any, known: dict[int, Known]) -> None:
        self._native = native
        self._known = known
        self.faults = 0

    @contained
    def found_inf(self, scaler: GradScaler, optimizer: Optimizer) -> dict[torch.device, Tensor] | None:
        """By device, 1 if a gradient there is not finite, else 0: fp32, 0-dim. None: the scaler has to look itself."""
        is_torchs = type(scaler).__module__ in _TORCHS and is_torchs_fused(optimizer)
        known = self._known.get(id(optimizer)) if is_torchs else None
        found = None if known is None else self._native.found_for_scaler(known.index)
        if known is None or found is None:
            return None
        on_host, on_devices = found
        with undisturbed():
            # The scaler adds to what it gets, and keeps it beyond the next read.
            by_device = {one.device: one.clone() for one in on_devices}
            if on_host is not None:
                by_device[torch.device("cpu")] = torch.tensor(float(on_host), dtype=torch.float32, device="cpu")
        if on_devices:
            self._native.note_use(known.index)
        return by_device


def check(original: Callable[..., Any], watching: Callable[[], Watcher | None]) -> Callable[..., Any]:
    def _check_inf_per_device(self: Any, optimizer: Optimizer) -> Any:
        watcher = watching()
        found = None if watcher is None else watcher.scaler_checks.found_inf(self, optimizer)
        if found is None:
            return original(self, optimizer)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    return _check_inf_per_device
