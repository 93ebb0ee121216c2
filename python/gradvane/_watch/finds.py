"""What the log says about what is watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradvane._log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from gradvane._naming import Names
    from gradvane._watch.swarm import Swarm

_LINES = 4
"""at most so many say what is watched: some scripts make optimizers all the time"""


class Finds:
    """Of one agent. A line is not said twice."""

    def __init__(self, native: Any, names: Names) -> None:
        self._names = names
        self._said: set[str] = set()
        self._watched_lines = 0
        # The ranks of a machine find the same: one of them says so.
        self._log: Callable[[str], None] = logger.info if native.local_rank() == 0 else logger.debug

    def say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._log(line)

    def say_watched(self, optimizers: list[Optimizer | None], swarm: Swarm | None) -> None:
        if self._watched_lines == _LINES:
            return
        params = len({id(tensor) for _, tensor in self._names()})
        what = ", ".join(type(root).__name__ for root in self._names.roots()) or "no module"
        kinds = ", ".join(type(optimizer).__name__ for optimizer in optimizers)
        if swarm is not None:
            kinds += f"{', ' if kinds else ''}many {swarm.kind}, as one"
        stepped_by = kinds if kinds else "no optimizer: every backward pass is a step"
        line = f"watching {params} parameters of {what}; {stepped_by}; loss: the root of backward()"
        if unnamed := self._names.unnamed():
            line += f"; {unnamed} tensors have no name"
        self._watched_lines += line not in self._said
        self.say(line)

    def say_no_policy(self, acts: bool) -> None:
        if acts:
            self.say("no policy acts here: there is no optimizer's step that could be left out")
