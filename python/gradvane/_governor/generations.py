"""Snapshots as they lie in memory: two generations, of which the good one is never written to."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from gradvane._governor import digest, host_memory
from gradvane._governor.arena import Arena
from gradvane._governor.copies import Flight
from gradvane._process import threads

if TYPE_CHECKING:
    from gradvane._governor.arena import Plan
    from gradvane._governor.state import Captured

_SPARE = 0.25
"""of an arena that had to grow once: LBFGS grows with each step"""


@dataclass
class Generation:
    arena: Arena | None = None
    plan: Plan | None = None
    captured: Captured | None = None
    """None: what the arena holds is no snapshot"""
    number: int = 0
    """of the snapshots that were begun, from 1"""
    step: int = 0
    taken_at: float = 0.0
    batches: int = 0
    checksum: int = 0
    restores: int = 0
    is_good: bool = False
    read_by: Flight = field(default_factory=Flight)
    """a restore that may still read it"""

    def void(self) -> None:
        self.captured, self.is_good = None, False

    def is_intact(self) -> bool:
        """Whether its bytes still have the checksum they were committed with."""
        assert self.arena is not None and self.plan is not None
        return digest.checksum(self.arena.bytes_of(self.plan)) == self.checksum


class Pair:
    """The two. Memory is allocated for both at once, and again only for a state that has grown."""

    def __init__(self) -> None:
        self.both = [Generation(), Generation()]
        self.allocations = 0

    @property
    def bytes(self) -> int:
        return sum(one.arena.size for one in self.both if one.arena is not None)

    def good(self) -> list[Generation]:
        """The newest first."""
        return sorted((one for one in self.both if one.is_good), key=lambda one: -one.number)

    def candidate(self) -> Generation:
        """The one that may be overwritten: one that is not good, else the older one."""
        return min(self.both, key=lambda one: (one.is_good, one.number))

    def refusal(self, plan: Plan) -> str | None:
        """Why there is no memory for the plan; allocates it where there is."""
        lacking = [one for one in self.both if one.arena is None or not one.arena.holds(plan)]
        if any(one.arena is None for one in self.both):
            wanted = lacking
        else:  # the other one keeps what it holds
            wanted = [one for one in lacking if one is self.candidate()]
        if not wanted:
            return None
        spare = 0.0 if wanted[0].arena is None else _SPARE
        gained = sum(one.arena.size for one in wanted if one.arena is not None)
        if (why := host_memory.refusal(int(plan.size * (1 + spare)) * len(wanted) - gained)) is not None:
            return why
        for one in wanted:
            one.void()
            one.arena = None  # before the new one is there
            try:
                one.arena = Arena(plan, spare)
            except RuntimeError as error:
                return str(error)
            self.allocations += 1
        return None


class Examination:
    """Reads copied bytes once they have landed: their checksum, and whether they are finite. On a thread of its own if
    the training's is not to wait; that one makes no work for torch's other threads."""

    def __init__(self, generation: Generation, in_background: bool, masks: set[int]) -> None:
        """`masks`: slots that may hold infinities."""
        assert generation.arena is not None and generation.plan is not None
        self._memory = generation.arena.bytes_of(generation.plan)
        self._runs = generation.plan.runs_without(masks)
        self.checksum = 0
        self.nonfinite_at: int | None = None
        self.error: Exception | None = None
        self._thread: threading.Thread | None = None
        if in_background:
            self._thread = threading.Thread(target=self._examine, args=(digest.ALONE * 8,), name="gradvane-snapshot",
                                            daemon=True)
            try:
                threads.start(self._thread)
            except RuntimeError as error:  # the machine has no thread left
                self.error, self._thread = error, None
        else:
            self._examine(digest.WHOLE)

    def _examine(self, at_once: int) -> None:
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                self.checksum = digest.checksum(self._memory, at_once)
                self.nonfinite_at = digest.first_nonfinite(self._memory, self._runs, at_once)
        except Exception as error:  # read by who asks for the result
            self.error = error

    def is_over(self, wait: bool) -> bool:
        if self._thread is None:
            return True
        if wait:
            self._thread.join()
        return not self._thread.is_alive()

    def leave(self) -> None:
        """It may be in the middle of a read when the program ends."""
        if self._thread is not None:
            threads.keep(self._thread)
