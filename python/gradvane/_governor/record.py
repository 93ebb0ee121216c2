"""What is reported of a rollback."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rollback:
    """What a rollback did. Steps are those of the run, as StepRecord.run_step."""

    reason: str
    step: int
    """the one after which it happened"""
    to_step: int
    """the one whose state is back"""
    generation: int
    """number of the snapshot, from 1"""
    optimizer: str
    """restore, reset or keep"""
    lr_factor: float
    """what learning rates of the snapshot were multiplied by"""
    batches_lost: int | None
    """batches that a DataLoader gave since the snapshot; None: there was no DataLoader"""
    snapshot_age_seconds: float
    seconds: float
    """on the thread that trains"""
    errors: tuple[str, ...] = ()
    """of schedulers and of the user's own functions that load a state"""
    by_policy: bool = False
    """False: the script asked for it"""

    @property
    def steps_lost(self) -> int:
        return self.step - self.to_step
