"""One way back to a snapshot: which one, what is written, and what is reported of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradvane._errors import GradvaneError
from gradvane._governor import random_states, restoring
from gradvane._governor.record import Rollback
from gradvane._governor.trees import Restoring
from gradvane._torch_ops import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradvane._governor.copies import Copies
    from gradvane._governor.generations import Generation
    from gradvane._governor.restoring import OptimizerPolicy
    from gradvane._governor.snapshots import Snapshots
    from gradvane._governor.state import TrainingState


class NothingToRestore(GradvaneError):
    """There is no snapshot that may be restored."""


class HalfRestored(GradvaneError):
    """Writing the state back broke off. Part of it may be the snapshot's, and the training must not go on."""


@dataclass(frozen=True)
class Request:
    """A rollback that is asked for. Raises GradvaneError for what no rollback can do."""

    reason: str
    optimizer: OptimizerPolicy = "restore"
    lr_factor: float = 1.0
    bad_step: int | None = None
    """snapshots of it and of later steps are given up"""
    by_policy: bool = False
    to_step: int | None = None
    """the snapshot that all ranks have, 0 if they have none in common; None: the newest good one"""

    def __post_init__(self) -> None:
        if self.optimizer not in restoring.POLICIES:
            raise GradvaneError(f"rollback: optimizer = {self.optimizer!r} is not allowed; allowed: "
                                + ", ".join(restoring.POLICIES))
        if not self.lr_factor > 0:
            raise GradvaneError(f"rollback: lr_factor = {self.lr_factor} is not allowed; it must be above 0")


class Restorer:
    """Belongs to the thread that trains."""

    def __init__(self, state: TrainingState, snapshots: Snapshots, copies: Copies, clock: Callable[[], float]) -> None:
        self._state, self._snapshots, self._copies, self._clock = state, snapshots, copies, clock

    def restore(self, asked: Request, step: int, batches: int | None) -> Rollback:
        """Raises HalfRestored once it has begun to write. Whatever else it raises, nothing was changed."""
        began = self._clock()
        if asked.bad_step is not None:
            self._snapshots.forget_since(asked.bad_step)
        with undisturbed():
            self._snapshots.settle(wait=True)
            generation = self._intact(asked.to_step)
            captured = generation.captured
            assert captured is not None
            plan = restoring.plan(captured, self._state, asked.optimizer)
            generation.restores += 1
            factor = asked.lr_factor**generation.restores
            try:
                errors = self._write(plan, generation)
                if asked.optimizer != "keep":  # its rates are not the snapshot's
                    restoring.back_off(captured, factor)
                random_states.put_back(captured.random)
            except Exception as error:
                raise HalfRestored(f"the snapshot of step {generation.step} could not be written back whole: "
                                   f"{type(error).__name__}: {error}") from error
        errors += self._load_user_parts(generation)
        return Rollback(asked.reason, step, generation.step, generation.number, asked.optimizer, factor,
                        None if batches is None else batches - generation.batches, began - generation.taken_at,
                        self._clock() - began, tuple(errors), asked.by_policy)

    def _write(self, plan: Restoring, generation: Generation) -> list[str]:
        """Returns what code that is not ours has raised."""
        plan.write()
        slots = sorted(plan.targets)
        assert generation.arena is not None and generation.plan is not None
        views = generation.arena.views(generation.plan)
        generation.read_by = self._copies.back([plan.targets[i] for i in slots], [views[i] for i in slots])
        return plan.load()

    def _intact(self, step: int | None) -> Generation:
        """The newest good one whose bytes are what they were; with `step`, the one of that step."""
        for generation in self._snapshots.good():
            if step is not None and (step == 0 or generation.step != step):
                continue
            if generation.is_intact():
                return generation
            self._snapshots.damage(generation)
        why = self._snapshots.last_refusal
        said = "there is no good snapshot to go back to" if step is None else "the ranks have no good snapshot in common"
        raise NothingToRestore(said + (f"; {why}" if why else ""))

    def _load_user_parts(self, generation: Generation) -> list[str]:
        errors = []
        assert generation.captured is not None and generation.arena is not None and generation.plan is not None
        for part in generation.captured.user:
            try:
                with undisturbed():
                    own = Restoring(generation.captured.layouts)
                    value = own.planned(part.value, None)
                    own.write()
                    views = generation.arena.views(generation.plan)
                    flight = self._copies.back(list(own.targets.values()), [views[i] for i in own.targets])
                    generation.read_by.events.update(flight.events)
                part.load(value)
            except Exception as error:
                errors.append(f"{part.name}: {type(error).__name__}: {error}")
        return errors


