"""Connects the policy `rollback` and the option snapshot_every with what keeps the states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from gradvane._governor.keeper import Keeper
    from gradvane._records import Incident

_DIVERGENCES = ("loss_divergence", "random_guess", "grad_exploding")


def roll_back_of(native: Any, keeper: Keeper, incidents: Callable[[], tuple[Incident, ...]],
                 find: Callable[[], object]) -> Callable[[Optimizer | None, str], bool] | None:
    """Takes snapshots as the options ask, and returns what goes back to one; None where there are none. `find` waits for
    the incident of a decision."""
    every = int(native.snapshot_every())
    if every == 0:
        return None
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

    return roll_back
