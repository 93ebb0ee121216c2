"""Connects the policy `rollback` and the option snapshot_every with what keeps the states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from gradvane._records import Incident
    from gradvane._watch.watcher import Watcher

_DIVERGENCES = ("loss_divergence", "random_guess", "grad_exploding")


def connect(native: Any, watcher: Watcher, incidents: Callable[[], tuple[Incident, ...]],
            find: Callable[[], Incident | None]) -> None:
    """Takes snapshots as the options ask, and has policies go back to them. `find` waits for the incident of a
    decision."""
    keeper = watcher.keeper
    watcher.governing.find_incident = find
    every = int(native.snapshot_every())
    if every == 0:
        return
    keeper.keep(every=every)
    keeper.badness = lambda: None if native.governor().is_state_good else "an incident has left the state in doubt"

    def roll_back(optimizer: Optimizer | None, reason: str) -> bool:
        # Such an incident opens some steps after the first bad one, and snapshots may have been taken meanwhile. After
        # a rollback it may still be open, and says nothing about those that came since.
        bad_step = None
        if any(kind in reason for kind in _DIVERGENCES):
            find()
            begun = [one.first_step for one in incidents() if one.closed_at is None and one.kind in _DIVERGENCES]
            bad_step = max((step for step in begun if step > keeper.last_rollback_step), default=None)
        return keeper.act(optimizer, reason, bad_step)

    watcher.governing.roll_back = roll_back
