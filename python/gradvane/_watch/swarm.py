"""Optimizers of a parameter or two each, which step within the backward pass and free each gradient at once:
together they are one optimizer, and what one backward pass makes them do is one step.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from gradvane import _finding

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

_FEWEST = 4
_MOST_PARAMETERS = 2
_MOST_APART = 64
"""that are watched one by one instead"""


class Swarm:
    """Looks like one optimizer of all their parameters, to whoever reads parameters and learning rates."""

    def __init__(self, optimizers: list[Optimizer]) -> None:
        self._members = [weakref.ref(optimizer) for optimizer in optimizers]
        self._keys = {id(optimizer) for optimizer in optimizers}
        self.state: dict[Any, Any] = {}
        self.index = -1
        self.is_in_backward = False
        self.kind = type(optimizers[0]).__name__
        self._stepped_behind: set[int] = set()

    def has(self, optimizer: Optimizer) -> bool:
        return id(optimizer) in self._keys

    def members(self) -> list[Optimizer]:
        return [member for reference in self._members if (member := reference()) is not None]

    def steps_behind(self, optimizer: Optimizer) -> None:
        """One of them steps, and not within a backward pass."""
        self._stepped_behind.add(id(optimizer))

    def is_none(self, others_train: bool) -> bool:
        """A pass begins: whether they were not one optimizer after all. Models of other threads are not, nor is one that
        steps alone behind a pass."""
        stepped, self._stepped_behind = len(self._stepped_behind), set()
        return (others_train or stepped == 1) and len(self._keys) <= _MOST_APART

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        members = self.members()
        params: list[Tensor] = [param for member in members for group in member.param_groups for param in group["params"]]
        return [{"params": params, "lr": members[0].param_groups[0].get("lr")}] if members else []


def swarm_of(optimizers: list[Optimizer]) -> Swarm | None:
    """One where there are that many optimizers of that few parameters each."""
    small = [o for o in optimizers if sum(1 for _ in _finding.parameters_of(o)) <= _MOST_PARAMETERS]
    return Swarm(small) if len(small) >= _FEWEST else None
