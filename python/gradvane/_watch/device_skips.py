"""A bad step that the optimizer leaves out by itself, on its device: torch's fused ones take `found_inf` for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gradvane._watch.events import contained
from gradvane._watch.governing import step_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from gradvane._watch.running import InThread

_TAKE_IT = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)


def is_torchs_fused(optimizer: Optimizer) -> bool:
    """Of torch's own classes, which take `found_inf`, and no sparse gradients."""
    return type(optimizer) in _TAKE_IT and all(group.get("fused") for group in optimizer.param_groups)


def heeds_found_inf(optimizer: Optimizer) -> bool:
    """Whether a step with `found_inf` at 1 changes nothing, and one with 0 is as one without it."""
    if not is_torchs_fused(optimizer) or step_cell(optimizer) is None:
        return False
    if hasattr(optimizer, "found_inf"):  # a gradient scaler's, or the script's own
        return False
    return not any(_makes_buffers(optimizer, group) for group in optimizer.param_groups if group.get("momentum"))


def _makes_buffers(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    """Whether torch's fused SGD would take the step in hand for the first one of the group: if no parameter that has a gradient
    has a momentum buffer. It makes them without filling them, which that step does, unless it is left out."""
    trained = False
    for param in group["params"]:
        if param.grad is None:
            continue
        if optimizer.state.get(param, {}).get("momentum_buffer") is not None:
            return False
        trained = True
    return trained


class DeviceSkips:
    """Of one agent."""

    def __init__(self, native: Any, here: InThread) -> None:
        self._native = native
        self._here = here
        self._is_asked = bool(native.may_leave_to_device())
        self.faults = 0

    def may_be_left(self, optimizer: Optimizer) -> bool:
        """Whether a bad step of it may be left to its device."""
        return self._is_asked and heeds_found_inf(optimizer)

    @contained
    def flag_for(self, optimizer: Optimizer) -> Tensor | None:
        """What the step in hand of the optimizer is to heed as `found_inf`, which it will from here on. None: nothing."""
        running = self._here.running[-1] if self._is_asked and self._here.running else None
        if running is None or running.key != id(optimizer):
            return None
        found = self._native.found_on_devices(running.index)
        if not found:
            return None
        flag = joined(found)
        self._native.heeds_devices(running.index)
        return flag


def joined(found: list[Tensor]) -> Tensor:
    """1 if one of them is: they are 0 or 1, 0-dim, each on its device. On the device of the first; no host waits."""
    first, *others = found
    for other in others:
        first = torch.maximum(first, other.to(first.device, non_blocking=True))
    return first


def heeding(flag: Tensor) -> Callable[..., Any]:
    """For governing.gate(): the optimizer has the flag as its `found_inf` for that call."""

    def step(original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer.found_inf = flag
        try:
            return original(optimizer, *args, **kwargs)
        finally:
            del optimizer.found_inf

    return step
