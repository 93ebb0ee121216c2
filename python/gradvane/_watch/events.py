"""What every event of training has in common here: it must not fail, and a backward pass begins at a loss."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

logger = logging.getLogger("gradvane")
_Method = TypeVar("_Method", bound="Callable[..., Any]")


def contained(method: _Method) -> _Method:
    """A method of something with `faults`: what it raises is counted, said once, and leaves training alone."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception:
            self.faults += 1
            if self.faults == 1:
                logger.warning("a hook failed; training goes on, this step may be missing", exc_info=True)
            return None

    return call  # type: ignore[return-value]


def loss_root(tensors: Any) -> Tensor | None:
    """The loss that a backward pass begins at, if that is one number; the sum where it begins at several."""
    if isinstance(tensors, torch.Tensor):
        return tensors if tensors.numel() == 1 else None
    if not isinstance(tensors, (list, tuple)):  # an iterator would be empty for the backward pass
        return None
    roots = list(tensors)
    if not roots or not all(isinstance(root, torch.Tensor) and root.numel() == 1 for root in roots):
        return None
    if len(roots) == 1:
        return roots[0]
    with torch.no_grad():
        return sum(root.detach().reshape(()) for root in roots)  # type: ignore[return-value]

