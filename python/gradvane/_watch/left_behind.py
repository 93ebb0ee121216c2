"""Gradients that a loop clears although no step was taken with them.

A loop that guards itself looks at its loss or its gradients and goes on to the next batch if they are bad. No step
and no clip shows that: clearing the gradients is the last moment at which they can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradvane._watch.events import contained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.nn import Module
    from torch.optim import Optimizer

    from gradvane._watch.known import Known
    from gradvane._watch.scaling import Scaling
    from gradvane._watch.trainers import Trainers


class LeftBehind:
    """Called before gradients are cleared. The native agent decides which of them were not used, and reports those that
    were bad."""

    def __init__(
        self, native: Any, known: dict[int, Known], scaling: Scaling, is_busy: Callable[[], bool], trainers: Trainers
    ) -> None:
        self._native = native
        self._known = known
        self._scaling = scaling
        self._is_busy = is_busy
        self._trainers = trainers
        self.faults = 0

    @contained
    def by_optimizer(self, optimizer: Optimizer) -> None:
        self._trainers.note()
        known = self._known.get(id(optimizer))
        if known is not None and self._native.unused([known.index]):
            self._discard([known])

    @contained
    def by_module(self, module: Module) -> None:
        self._trainers.note()
        everyone = list(self._known.values())
        unused = self._native.unused([known.index for known in everyone])
        if unused:
            owners, _ = self._native.owners(list(module.parameters()))
            self._discard(known for known in everyone if known.index in unused and known.index in owners)

    def _discard(self, several: Iterable[Known]) -> None:
        if self._is_busy():  # a closure clears what it is about to compute
            return
        for known in several:
            self._native.discard(known.index, *self._scaling.state_of(known.optimizer()))
