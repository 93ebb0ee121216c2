"""One optimizer that is watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import weakref

    from torch.optim import Optimizer

    from gradvane._watch.swarm import Swarm


@dataclass
class Known:
    index: int
    """the native agent's"""
    optimizer: weakref.ref[Optimizer]
    steps: int = 0


def in_use(known: dict[int, Known]) -> list[Known]:
    """Those that have stepped; all, where none has. One may be the shell of another, which alone steps."""
    everyone = list(known.values())
    return [one for one in everyone if one.steps] or everyone


def optimizers_of(known: dict[int, Known], swarm: Swarm | None) -> list[Optimizer]:
    """All that live, in the order in which they became known."""
    found = [optimizer for one in list(known.values()) if (optimizer := one.optimizer()) is not None]
    return found + ([] if swarm is None else swarm.members())
