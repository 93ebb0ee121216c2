"""What a loop logs itself: its loss, and numbers of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from gradvane._log import logger
from gradvane._torch_ops import undisturbed
from gradvane._watch.events import contained, is_one_number

if TYPE_CHECKING:
    from torch import Tensor

    from gradvane._watch.watcher import Watcher

_MOST = 2**63 - 1
"""tokens or samples of one call"""


class CustomMetrics:
    """Of one agent. What is no number is left out: a warning names the first one."""

    def __init__(self, native: Any, watcher: Watcher) -> None:
        self._native = native
        self._watcher = watcher
        self._has_left_out = False
        self._has_refused = False
        self.faults = 0

    @contained
    def log(self, metrics: Mapping[str, object] | None, loss: object, scalars: dict[str, object]) -> None:
        """As gradvane.log()."""
        scalars.pop("step", None)  # as other loggers take it: here the moment says which one it is
        if isinstance(metrics, Mapping):
            scalars = {**{str(name): value for name, value in metrics.items()}, **scalars}
        elif metrics is not None:
            self._refuse("what log() was given", f"of type {type(metrics).__name__}, where names belong to numbers")
        loss = scalars.pop("loss", None) if loss is None else loss
        if loss is not None and (number := self._number("loss", loss)) is not None:
            self._watcher.take_loss(number)
        for name, value in scalars.items():
            number = self._number(name, value)
            if number is not None and not self._native.log(name, number) and not self._has_left_out:
                self._has_left_out = True
                logger.warning("there are 256 custom metrics already: %s and other new names are left out", name)

    @contained
    def count(self, **work: object) -> None:
        """As gradvane.count()."""
        whole = {name: self._number(name, value, int) for name, value in work.items()}
        self._native.count(*(min(max(int(whole[name] or 0), 0), _MOST) for name in ("tokens", "samples")))

    def _number(self, name: str, value: Any, kind: type[float] = float) -> Tensor | float | None:
        """A tensor stays one where it is logged: it is read where it is."""
        try:
            if kind is int or not isinstance(value, torch.Tensor):
                return kind(value)
            if is_one_number(value) and value.layout == torch.strided and not value.is_complex() and not value.is_meta:
                with undisturbed():  # whole numbers and truth values are of a type that no loss has
                    return value if value.is_floating_point() else value.detach().to(torch.float64)
            what = "a tensor of several elements, of none, or of another kind"
        except (TypeError, ValueError, OverflowError, RuntimeError):
            what = f"of type {type(value).__name__}"
        self._refuse(name, what)
        return None

    def _refuse(self, name: str, what: str) -> None:
        if not self._has_refused:
            self._has_refused = True
            logger.warning("%s is no number but %s: it is left out, and so is what else is none", name, what)
