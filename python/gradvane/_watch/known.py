"""One optimizer that is watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradvane import _finding

if TYPE_CHECKING:
    import weakref

    from torch.optim import Optimizer

    from gradvane._watch.running import Running
    from gradvane._watch.swarm import Swarm


@dataclass
class Known:
    index: int
    """the native agent's"""
    optimizer: weakref.ref[Optimizer]
    steps: int = 0


def is_part(optimizer: Optimizer, known: dict[int, Known], running: list[Running]) -> bool:
    """Whether it is inside one that is watched and has never stepped, nor does so now: SAM's first_step() and
    second_step() call the step() of what it is made of, and never its own."""
    under_way = {one.key for one in running}
    return any(not one.steps and key not in under_way and _holds(one.optimizer(), optimizer)
               for key, one in list(known.items()))


def shells_of(optimizer: Optimizer, known: dict[int, Known]) -> list[tuple[int, int]]:
    """Ids and indices of those around it that have not stepped when it takes its first step: no optimizers of their own."""
    return [(key, one.index) for key, one in list(known.items()) if not one.steps and _holds(one.optimizer(), optimizer)]


def _holds(outer: Optimizer | None, inner: Optimizer) -> bool:
    """Whether `inner` is in it, with parameters of its own."""
    if outer is None or not any(held is inner for held in _finding.held_by(outer)):
        return False
    params = {id(param) for param in _finding.parameters_of(outer)}
    return any(id(param) in params for param in _finding.parameters_of(inner))


def optimizers_of(known: dict[int, Known], swarm: Swarm | None) -> list[Optimizer]:
    """All that live, in the order in which they became known."""
    found = [optimizer for one in list(known.values()) if (optimizer := one.optimizer()) is not None]
    return found + ([] if swarm is None else swarm.members())
