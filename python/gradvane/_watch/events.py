"""What every event of training has in common here: it must not fail, and a backward pass begins at a loss."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from gradvane._errors import is_of_a_signal
from gradvane._log import logger
from gradvane._torch_ops import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_Method = TypeVar("_Method", bound="Callable[..., Any]")


def contained(method: _Method) -> _Method:
    """A method of something with `faults`: what it raises is counted, said once, and leaves training alone."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if is_of_a_signal(error):
                raise
            self.faults += 1
            if self.faults == 1:
                logger.warning("a hook failed; training goes on, this step may be missing", exc_info=True)
            return None

    return call  # type: ignore[return-value]


def roots_of(tensors: Any) -> list[Tensor]:
    """What a backward pass begins at. None of an iterator, which would be empty for the backward pass."""
    roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    return list(roots) if all(isinstance(root, torch.Tensor) for root in roots) else []


def losses_among(roots: list[Tensor]) -> list[Tensor]:
    """The roots of a backward pass if they are losses, each one number; else none."""
    return roots if all(is_one_number(root) for root in roots) else []


def sum_of(losses: list[Tensor]) -> Tensor | None:
    """As one loss. None of none."""
    if len(losses) < 2:
        return losses[0] if losses else None
    with undisturbed():
        return sum(loss.detach().reshape(()) for loss in losses)  # type: ignore[return-value]


def is_one_number(tensor: Tensor) -> bool:
    with torch._C.DisableTorchFunction():  # a program's overrides see its own calls alone
        return bool(tensor.numel() == 1)
