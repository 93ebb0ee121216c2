"""Who is to blame in a step that was watched: from what modules were given, made and got back, in order, and
whether each of it was finite.

Masks are made of minus infinity, so what stays within a module does no harm: a bad output counts only if all the
modules around it returned something bad too, and then the loss did.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.nn import Module

    from gradvane._records import TracedAt

UNKNOWN, FINITE, MINUS_INFINITY, PLUS_INFINITY, NAN = range(-1, 4)
"""as collectors/tensors/finite_checks.hpp answers"""


class Kind(enum.Enum):
    """What was asked about."""

    INPUT = enum.auto()
    """that no module returned: data, or what the code around a module made"""
    WEIGHT = enum.auto()
    OUTPUT = enum.auto()
    LOSS = enum.auto()
    GRADIENT = enum.auto()
    """of what passes between modules"""
    WEIGHT_GRADIENT = enum.auto()


@dataclass(eq=False, slots=True)
class Call:
    """One run of a module's forward."""

    module: Module
    parent: Call | None
    order: int
    is_ignored: bool = False
    """without gradients from the outset: no part of the step"""
    is_again: bool = False
    """within a backward pass, for what a checkpoint did not keep"""
    outputs: list[int] = field(default_factory=list)
    """questions; -1 where none could be asked"""

    def around(self) -> list[Call]:
        """Itself and what it runs within, the innermost first."""
        calls = [self]
        while (parent := calls[-1].parent) is not None:
            calls.append(parent)
        return calls


@dataclass(eq=False, slots=True)
class Passage:
    """A tensor on its way between modules."""

    home: Call | None
    """in whose code it is; None: outside of all modules"""
    question: int
    source: Call | None = None
    """in whose code it was made, where no module returned it; None: outside"""
    takers: list[Call] = field(default_factory=list)
    """those that it was given to"""


class Event(NamedTuple):
    order: int
    kind: Kind
    question: int
    call: Call | None
    passage: Passage | None
    micro_step: int


class Verdict(NamedTuple):
    call: Call | None
    """None: what is outside of all modules"""
    at: TracedAt
    """module: it made it; weight: a weight of its was bad before; input: it was given it, and no module made
    it; loss: it came of the loss"""
    is_backward: bool
    micro_step: int


def first_bad(events: Sequence[Event], answers: Sequence[int]) -> Verdict | None:
    """`answers` by question. A loss that is finite acquits the forward pass before it."""
    forward: list[Event] = []
    for event in sorted(events, key=lambda event: event.order):
        answer = answers[event.question] if event.question >= 0 else UNKNOWN
        if event.kind is Kind.LOSS:
            if answer != FINITE:
                verdict = _in_forward(forward, answers, PLUS_INFINITY if answer == UNKNOWN else MINUS_INFINITY)
                if verdict is not None:
                    return verdict
                if answer != UNKNOWN:
                    return Verdict(None, "loss", False, event.micro_step)
            forward.clear()
        elif event.kind in (Kind.GRADIENT, Kind.WEIGHT_GRADIENT):
            if answer > FINITE:
                return _in_backward(event)
        else:
            forward.append(event)
    return _in_forward(forward, answers, PLUS_INFINITY)  # its backward pass never came


def _in_forward(events: Sequence[Event], answers: Sequence[int], least: int) -> Verdict | None:
    """`least`: how bad the outermost output must be, for the rest to matter."""
    for event in events:
        call = event.call
        if call is None or answers[event.question] < _BAD[event.kind] or not _spread(call, answers, least):
            continue
        if event.kind is Kind.WEIGHT:
            return Verdict(call, "weight", False, event.micro_step)
        if event.kind is Kind.OUTPUT:
            return Verdict(call, "module", False, event.micro_step)
        source = call.parent if event.passage is None else event.passage.source
        if source is None:
            return Verdict(call.around()[-1], "input", False, event.micro_step)
        return Verdict(source, "module", False, event.micro_step)
    return None


_BAD = {Kind.INPUT: PLUS_INFINITY, Kind.WEIGHT: MINUS_INFINITY, Kind.OUTPUT: MINUS_INFINITY}
"""An input of minus infinity is a mask."""


def _spread(call: Call, answers: Sequence[int], least: int) -> bool:
    """Whether it reached the outside. Modules that returned nothing, or raised, cannot tell."""
    around = call.around()
    for one in around:
        known = [answers[question] for question in one.outputs if question >= 0]
        if known and max(known) < (least if one is around[-1] else MINUS_INFINITY):
            return False
    return True


def _in_backward(event: Event) -> Verdict:
    if event.kind is Kind.WEIGHT_GRADIENT or event.passage is None:
        return Verdict(event.call, "module", True, event.micro_step)
    passage = event.passage
    call = _common(_innermost(passage.takers)) if passage.takers else passage.home
    return Verdict(call, "module" if call is not None else "loss", True, event.micro_step)


def _innermost(calls: Sequence[Call]) -> list[Call]:
    outer = {id(parent) for call in calls for parent in call.around()[1:]}
    return [call for call in calls if id(call) not in outer]


def _common(calls: Sequence[Call]) -> Call:
    """The innermost call around all of them; where there is none, the one whose backward comes first."""
    shared = calls[0].around()
    for call in calls[1:]:
        ids = {id(one) for one in call.around()}
        shared = [one for one in shared if id(one) in ids]
    return shared[0] if shared else calls[-1]


def nearest(call: Call | None, is_known: Callable[[Module], bool]) -> Module | None:
    """The module of the call, or of the nearest one around it that has a name."""
    if call is None:
        return None
    return next((one.module for one in call.around() if is_known(one.module)), call.module)
