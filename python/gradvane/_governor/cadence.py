"""When the next snapshot is due: by steps or seconds, and no more often than its cost allows."""

from __future__ import annotations


class Cadence:
    """Seconds are of one monotonic clock."""

    def __init__(self, steps: int, seconds: float, budget: float, is_common: bool = False) -> None:
        """0: never for `steps` and `seconds`; for `budget`, the share of time that snapshots may take: no bound. `is_common`:
        ranks agree, and `steps` are counted from the first attempt, whether or not later ones were refused: the same on each."""
        self.steps, self.seconds, self.budget, self.is_common = steps, seconds, budget, is_common
        self._first: int | None = None
        self._tried = 0
        self._last_step: int | None = None
        self._last_at = 0.0
        self._began_at: float | None = None
        self._cost = 0.0

    @property
    def is_on(self) -> bool:
        return self.steps > 0 or self.seconds > 0

    def is_due(self, step: int, now: float) -> bool:
        if not self.is_on or self._is_too_early(now):
            return False
        if self.is_common:
            return self._first is None or self._place_of(step) > self._place_of(self._tried)
        if self._last_step is None:
            return True
        return (self.steps > 0 and step - self._last_step >= self.steps) or (
            self.seconds > 0 and now - self._last_at >= self.seconds)

    def took(self, step: int, began: float, seconds: float) -> None:
        """An attempt at one, and what it cost the thread that trains."""
        self._note_attempt(step)
        self._began_at, self._cost = began, seconds

    def also_took(self, seconds: float) -> None:
        """What the latest one cost that thread later on."""
        self._cost += seconds

    def taken(self, step: int, now: float) -> None:
        """One that was not refused so far."""
        self._last_step, self._last_at = step, now
        self._note_attempt(step)

    def lost(self) -> None:
        """The one that was taken last is lost: another is due."""
        self._last_step = None

    def _note_attempt(self, step: int) -> None:
        self._first = step if self._first is None else self._first
        self._tried = step

    def _place_of(self, step: int) -> int:
        assert self._first is not None
        return (step - self._first) // max(self.steps, 1)

    def _is_too_early(self, now: float) -> bool:
        return self.budget > 0 and self._began_at is not None and now - self._began_at < self._cost / self.budget
