"""Takes snapshots of a training's state and keeps the last good ones.

A snapshot is committed when all of its copies have landed, every number in them is finite, and nothing bad is known
of the training. Until then the generation before it is untouched; a snapshot that is refused is counted by its reason.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING


from gradvane._governor.arena import Plan
from gradvane._governor.generations import Examination, Pair
from gradvane._governor.state import slots_in
from gradvane._governor.tensors import Unsupported, distinct
from gradvane._log import logger
from gradvane._torch_ops import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradvane._governor.copies import Copies, Flight
    from gradvane._governor.generations import Generation
    from gradvane._governor.state import TrainingState

REASONS = ("incident", "nonfinite", "memory", "unsupported", "capturing", "written", "threads", "failed")
"""why a snapshot is refused"""


@dataclass
class _Pending:
    generation: Generation
    flight: Flight
    examination: Examination | None = None


class Snapshots:
    """Belongs to the thread that trains."""

    def __init__(self, state: TrainingState, copies: Copies, clock: Callable[[], float],
                 badness: Callable[[], str | None]) -> None:
        """`clock`: monotonic seconds. `badness`: why the training is not in a good state now; None if it is."""
        self._state, self._copies, self._clock, self._badness = state, copies, clock, badness
        self._pair = Pair()
        self._plan: Plan | None = None
        self._pending: _Pending | None = None
        self._begun = 0
        self._overlaps = True
        self._masks: set[str] = set()
        """buffers that held infinities from the start, as masks of attention do"""
        self._noted: set[str] = set()
        self.committed = 0
        self.refused: collections.Counter[str] = collections.Counter()
        self.damaged = 0
        """generations whose bytes no longer had their checksum"""
        self.last_refusal = ""
        """one sentence"""
        self.allocating_seconds = 0.0
        """of the latest attempt"""
        self.note_result: Callable[[str], object] = lambda _result: None
        """called with `committed`, or with why it was refused"""
        self.note_newest: Callable[[], object] = lambda: None
        """called when the newest good one may be another"""
        self.note_lost: Callable[[], object] = lambda: None
        """called when the one that was begun last will not become good"""

    @property
    def bytes(self) -> int:
        """Host memory of both generations."""
        return self._pair.bytes

    @property
    def allocations(self) -> int:
        return self._pair.allocations

    def good(self) -> list[Generation]:
        """The newest first."""
        return self._pair.good()

    def latest(self) -> Generation | None:
        """The newest one that is good or may become so."""
        if self._pending is not None:
            return self._pending.generation
        return next(iter(self._pair.good()), None)

    def is_pending(self) -> bool:
        return self._pending is not None

    def take(self, step: int, batches: int, overlaps: bool) -> bool:
        """Begins one; what CPUs hold is copied, examined and committed before this returns. `overlaps`: it is called
        by a step's hook, and before_update() comes before the next update. False: it was refused; or the one before
        it is not over, which does not count."""
        self.allocating_seconds = 0.0
        self.settle()
        if self._pending is not None:
            return False
        if self._copies.is_capturing():
            return self.refuse("capturing", "a CUDA graph is captured")
        if (why := self._badness()) is not None:
            return self.refuse("incident", why)
        candidate = None
        try:
            with undisturbed():
                candidate = self._copy(step, batches, overlaps and self._overlaps)
        except Unsupported as error:
            return self.refuse("unsupported", str(error))
        except Exception as error:
            return self.refuse("failed", f"{type(error).__name__}: {error}")
        if candidate is None:
            return False
        self._pending = candidate
        self.settle()
        return self._pending is not None or candidate.generation.is_good

    def before_update(self) -> None:
        """An optimizer is about to write: it waits, on its device, for copies that are under way."""
        pending = self._pending
        if pending is not None and pending.flight.events and self._copies.is_capturing():
            # Its update will be replayed without a hook, and nothing may be asked of the device now.
            self._drop("capturing", "a CUDA graph is captured")
        elif pending is not None and not self._copies.gate(pending.flight):
            self._overlaps = False  # this loop writes parameters between steps
            self._drop("written", "parameters were written between two steps; from now on streams wait for the copies")

    def settle(self, wait: bool = False) -> None:
        """Takes the one that is under way as far as it has come, without waiting for it unless that is asked for."""
        pending = self._pending
        if pending is None or (pending.flight.events and self._copies.is_capturing()):
            return
        if wait:
            self.before_update()
            if self._pending is None:
                return
            self._copies.land(pending.flight)
        if pending.examination is None:
            if not self._copies.has_landed(pending.flight):
                return
            pending.examination = self._examination(pending)
        if not pending.examination.is_over(wait) or not pending.flight.is_gated:
            return
        if self._is_mask(pending.generation, pending.examination.nonfinite_at):
            pending.examination = self._examination(pending)
            self.settle(wait)
            return
        self._decide(pending.generation, pending.examination)

    def forget_since(self, step: int) -> None:
        """Snapshots of `step` of the run and of later ones are of a training that had gone bad."""
        if self._pending is not None and self._pending.generation.step >= step:
            self._drop("incident", f"step {step} was bad")
        later = [one for one in self._pair.good() if one.step >= step]
        for one in later:
            one.void()
        if later:
            self.note_newest()
        if later and not self._pair.good():
            steps = " and ".join(str(one.step) for one in later)
            self.last_refusal = f"those of {steps} came after the first bad step, {step}: take snapshots less often"

    def damage(self, generation: Generation) -> None:
        self.damaged += 1
        generation.void()
        self.note_newest()

    def stop(self) -> None:
        """Copies that are under way land before their memory goes."""
        if self._pending is not None:
            self._copies.land(self._pending.flight)
            if self._pending.examination is not None:
                self._pending.examination.leave()
        for one in self._pair.both:
            self._copies.land(one.read_by)
        self._pending, self._plan, self._pair = None, None, Pair()

    def _copy(self, step: int, batches: int, overlaps: bool) -> _Pending | None:
        now = self._clock()
        captured, tensors = self._state.capture(now)
        if self._plan is None or self._plan.layouts != captured.layouts:
            self._plan = Plan(captured.layouts)
        plan = self._plan
        candidate = self._pair.candidate()
        self._copies.land(candidate.read_by)
        before = self._clock()
        why = self._pair.refusal(plan)
        self.allocating_seconds = self._clock() - before
        candidate = self._pair.candidate()
        if why is None:
            candidate.void()
        self.note_newest()  # what it held is no snapshot any more
        if why is not None:
            self.refuse("memory", why)
            return None
        assert candidate.arena is not None
        self._begun += 1
        candidate.plan, candidate.number, candidate.step = plan, self._begun, step
        candidate.taken_at, candidate.batches, candidate.restores = now, batches, 0
        source = [t if t.shape == one.shape else distinct(t) for t, one in zip(tensors, plan.layouts)]
        flight = self._copies.out(candidate.arena.views(plan), source, captured.at_once, overlaps)
        candidate.captured = captured
        return _Pending(candidate, flight)

    def _examination(self, pending: _Pending) -> Examination:
        assert pending.generation.captured is not None
        names = pending.generation.captured.names if self._masks else []
        masks = {slot for slot, name in enumerate(names) if name in self._masks}
        return Examination(pending.generation, bool(pending.flight.events), masks)

    def _is_mask(self, generation: Generation, byte: int | None) -> bool:
        """Whether that byte belongs to a buffer with infinities and no NaN, in a training that has no snapshot yet.
        It is one of the masks then."""
        if byte is None or self.committed > 0:
            return False
        assert generation.plan is not None and generation.captured is not None and generation.arena is not None
        slot = generation.plan.slot_at(byte)
        is_buffer = any(slot in slots_in(node) for part in generation.captured.models for node in part.buffers.values())
        if not is_buffer or generation.plan.layouts[slot].dtype.itemsize == 1:
            return False
        with undisturbed():
            if bool(generation.arena.views(generation.plan)[slot].isnan().any()):
                return False
        self._masks.add(generation.captured.names[slot])
        return True

    def _decide(self, generation: Generation, examination: Examination) -> None:
        """Everything has landed and is known."""
        if examination.error is not None:
            self._drop("failed", f"{type(examination.error).__name__}: {examination.error}")
        elif examination.nonfinite_at is not None:
            assert generation.plan is not None and generation.captured is not None
            name = generation.captured.names[generation.plan.slot_at(examination.nonfinite_at)]
            self._drop("nonfinite", f"{name} is not finite")
        elif (why := self._badness()) is not None:
            self._drop("incident", why)
        else:
            generation.checksum = examination.checksum
            generation.is_good = True
            self._pending = None
            self.committed += 1
            self.note_result("committed")
            self.note_newest()

    def _drop(self, reason: str, why: str) -> None:
        assert self._pending is not None
        pending, self._pending = self._pending, None
        pending.generation.void()
        pending.generation.read_by = pending.flight  # what still flies has to land before the next one
        self.note_lost()
        self.refuse(reason, why)

    def refuse(self, reason: str, why: str) -> bool:
        self.refused[reason] += 1
        self.note_result(reason)
        self.last_refusal = why
        if reason not in self._noted:
            self._noted.add(reason)
            logger.info("a snapshot was not taken: %s", why)
        return False
