"""A bad step that the optimizer leaves out by itself, on its device: torch's fused ones take `found_inf` for that."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from gradvane._watch.governing import step_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from torch.optim import Optimizer

_TAKE_IT = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)


def heeds_found_inf(optimizer: Optimizer) -> bool:
    """Whether a step with `found_inf` at 1 changes nothing, and one with 0 is as one without it."""
    if type(optimizer) not in _TAKE_IT or step_cell(optimizer) is None:
        return False
    # A fused SGD makes its momentum buffers without filling them, which its first step does, unless it is left out.
    return all(group.get("fused") and not group.get("momentum") for group in optimizer.param_groups)


def joined(found: list[Tensor]) -> Tensor:
    """1 if one of them is: they are 0 or 1, 0-dim, each on its device. On the device of the first; no host waits."""
    first, *others = found
    for other in others:
        first = torch.maximum(first, other.to(first.device, non_blocking=True))
    return first


def heeding(original: Callable[..., Any], found: dict[int, Tensor]) -> Callable[..., Any]:
    """Around an optimizer's step(): what `found` has for its id is taken out, and is its `found_inf` for that call."""

    def step(*args: Any, **kwargs: Any) -> Any:
        here = found.pop(id(args[0]), None) if found else None
        if here is None:
            return original(*args, **kwargs)
        with _found_inf(args[0], here):
            return original(*args, **kwargs)

    return step


@contextlib.contextmanager
def _found_inf(optimizer: Any, found: Tensor) -> Iterator[None]:
    """A gradient scaler's own stays in force, and stays its own."""
    scalers = getattr(optimizer, "found_inf", None)
    optimizer.found_inf = found if scalers is None else torch.maximum(scalers, found.to(scalers.device))
    try:
        yield
    finally:
        if scalers is None:
            del optimizer.found_inf
        else:
            optimizer.found_inf = scalers
