"""Connects the policy `rollback`, the options of snapshots and the native governor with what keeps the states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradvane._governor.rollback import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradvane._governor.record import Rollback
    from gradvane._records import Incident
    from gradvane._watch.watcher import Watcher


def connect(native: Any, watcher: Watcher, find: Callable[[], Incident | None]) -> None:
    """Takes snapshots as the options ask, and has policies go back to them. `find` waits for the incident of a
    decision."""
    keeper = watcher.keeper
    watcher.governing.find_incident = find

    def note_rollback(done: Rollback) -> None:
        native.note_rollback(
            done.reason, done.step, done.to_step, done.generation, done.snapshot_age_seconds, done.batches_lost,
            done.optimizer, done.lr_factor, done.by_policy)

    keeper.note_rollback = note_rollback
    keeper.note_failure = native.stop_at_next_step
    keeper.snapshots.note_result = native.count_snapshot
    keeper.snapshots.note_newest = lambda: native.set_snapshots(keeper.good())
    keeper.badness = lambda: None if native.may_snapshot() else "an incident has left the state in doubt"
    keeper.set_devices(native.own_calls, native.rollback_device_sync())
    steps, seconds, budget, is_common = native.snapshot_pace()
    if not steps and not seconds:
        return
    keeper.keep(steps, seconds, budget, is_common)
    how, lr_factor = native.rollback_options()
    # A divergence is found some steps after its first one, and snapshots may have been taken meanwhile.
    watcher.governing.roll_back = lambda optimizer, reason: keeper.act(optimizer, Request(
        reason, how, lr_factor, native.diverges_since(), by_policy=True, to_step=native.agreed_snapshot()))
