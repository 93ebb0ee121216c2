"""The phases of a step: those that the script marks, and those seen where torch's own functions run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gradvane import _imports
from gradvane._watch.evaluation import Evaluation
from gradvane._watch.events import contained

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradvane._native import PhaseSpan
    from gradvane._watch.known import Known
    from gradvane._watch.running import InThread
    from gradvane._watch.watcher import Watcher

    _Watching = Callable[[], Watcher | None]

_CHECKPOINT_MODULES = ("torch.distributed.checkpoint", "torch.distributed.checkpoint.state_dict_saver")


class Phases:
    """Of one agent. Phases are a thread's own and nest; the inner one has the time."""

    def __init__(self, native: Any, here: InThread, known: dict[int, Known]) -> None:
        self._native = native
        self._here = here
        self.evaluation = Evaluation(native, known)
        self.faults = 0

    @contained
    def enter(self, name: str) -> PhaseSpan | None:
        """One that the script marks. None where the run is over."""
        span: PhaseSpan | None = self._native.phase_begins(name)
        if name == "evaluation" and span is not None:
            self._here.evaluations += 1
        return span

    @contained
    def leave(self, name: str, span: PhaseSpan | None) -> None:
        if span is None:
            return
        self._native.phase_ends(span)
        if name == "evaluation":
            self._here.evaluations -= 1
            self.evaluation.ends()  # the model may stay in its mode until the next forward pass

    @contained
    def seen(self, name: str) -> PhaseSpan | None:
        """One of torch's functions begins that is a phase if the thread is one that trains. None where it is none."""
        if not self._here.trains:
            return None
        if name == "data" and (self._is_evaluating() or not torch.is_grad_enabled()):
            return None
        span: PhaseSpan | None = self._native.phase_begins(name)
        return span

    @contained
    def seen_to_end(self, span: PhaseSpan) -> None:
        self._native.phase_ends(span)

    def _is_evaluating(self) -> bool:
        return self.evaluation.is_on or self._here.evaluations > 0


def timed(name: str) -> Callable[[Callable[..., Any], _Watching], Callable[..., Any]]:
    """Makes what stands around a function that is a phase."""

    def make(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            watcher = watching()
            span = None if watcher is None else watcher.phases.seen(name)
            if watcher is None or span is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            finally:
                watcher.phases.seen_to_end(span)
            if name == "data":
                watcher.keeper.batch_comes()
            return result

        return call

    return make


def checkpoint_modules() -> list[Any]:
    """Where torch.distributed.checkpoint has its functions; empty until the program has imported it."""
    modules = [_imports.imported(name) for name in _CHECKPOINT_MODULES]
    return modules if all(modules) else []
