"""What each thread that trains is in the middle of."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradvane import _finding

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.weak import TensorWeakRef

    from gradvane._watch.known import Known


@dataclass
class Running:
    index: int
    key: int
    has_closure: bool
    verdict: int = 0
    """of the native governor; other than 0, the step is left out"""
    inner: int = 0
    """calls of the same optimizer's step() within it: a class that calls super().step()"""


class RunningSteps(list[Running]):
    """The optimizers' step() calls that have been entered and not left, the innermost last."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def leave(self, optimizer: Optimizer) -> Running | None:
        """None where it was never entered, or is a part of a step. Those inside it that an exception has left have
        failed."""
        if not any(running.key == id(optimizer) for running in self):
            return None
        if self[-1].key == id(optimizer) and self[-1].inner:
            self[-1].inner -= 1
            return None
        while (running := self.pop()).key != id(optimizer):
            self._native.step_failed(running.index)
        return running

    def enter_inner(self, optimizer: Optimizer) -> bool:
        """Whether the step is a part of the same optimizer's, which is under way."""
        is_inner = bool(self) and self[-1].key == id(optimizer)
        if is_inner:
            self[-1].inner += 1
        return is_inner

    def are_made_of(self, optimizer: Optimizer, everyone: dict[int, Known]) -> bool:
        """An optimizer that another one is made of steps inside it: that is one step."""
        owned = {id(param) for param in _finding.parameters_of(optimizer)}
        for running in self:
            known = everyone.get(running.key)
            outer = known.optimizer() if known is not None else None
            if outer is not None and any(id(param) in owned for param in _finding.parameters_of(outer)):
                return True
        return False

    def forget_failed(self, optimizer: Optimizer) -> None:
        """Steps that an exception has left are on our list and no longer on the stack."""
        code = getattr(type(optimizer).step, "__code__", None)
        depth = 0
        frame = sys._getframe(1)
        while frame is not None:
            depth += frame.f_code is code
            frame = frame.f_back  # type: ignore[assignment]
        while len(self) > max(depth - 1, 0):
            self._native.step_failed(self.pop().index)

    def forget_left(self, everyone: dict[int, Known]) -> None:
        """A backward pass begins: steps on our list that are not on the stack have failed."""
        if not self:
            return
        codes = set()
        frame = sys._getframe(1)
        while frame is not None:
            codes.add(frame.f_code)
            frame = frame.f_back  # type: ignore[assignment]
        while self:
            known = everyone.get(self[-1].key)
            step = getattr(type(known.optimizer()), "step", None) if known is not None else None
            if getattr(step, "__code__", None) in codes:
                return
            self._native.step_failed(self.pop().index)


class InThread(threading.local):
    """Of the thread that asks: several may train at once, each a model of its own."""

    def __init__(self, native: Any) -> None:
        self.running = RunningSteps(native)
        self.backward_depth = 0
        self.clip_depth = 0
        self.steps_before = 0
        self.trains = False
        """it has begun a backward pass"""
        self.evaluations = 0
        """that the script marks, and that it is within"""
        self.last_root: TensorWeakRef | None = None
