"""Evaluation between training steps, as the model's mode shows it: what it waits for belongs to no step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradvane import _finding
from gradvane._watch.events import contained

if TYPE_CHECKING:
    from torch.nn import Module

    from gradvane._native import PhaseSpan
    from gradvane._watch.known import Known


class Evaluation:
    """Begins when a model is put into evaluation mode, and ends when it is put back or a backward pass begins: some
    are trained in that mode."""

    def __init__(self, native: Any, known: dict[int, Known]) -> None:
        self._native = native
        self._known = known
        self._span: PhaseSpan | None = None
        self.is_on = False
        self.faults = 0

    @contained
    def mode_changes(self, module: Module) -> None:
        if module.training == self.is_on and self._is_model(module):
            self._set(not module.training)

    @contained
    def ends(self) -> None:
        if self.is_on:
            self._set(False)

    def _set(self, is_on: bool) -> None:
        self.is_on = is_on
        if is_on:
            self._span = self._native.phase_begins("evaluation")
        elif self._span is not None:
            self._native.phase_ends(self._span)

    def _is_model(self, module: Module) -> bool:
        """Has all that an optimizer updates: a part of a model may be in either mode at any time."""
        owned = {id(param) for param in module.parameters()}
        return any(
            (optimizer := known.optimizer()) is not None
            and all(id(param) in owned for param in _finding.parameters_of(optimizer))
            for known in list(self._known.values())
        )
