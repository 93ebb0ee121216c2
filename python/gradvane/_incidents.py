"""The incidents of a run as they were last reported."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradvane._records import Incident

_MOST = 256
_OF_POLICIES = (
    "nonfinite_loss",
    "nonfinite_grad",
    "nonfinite_weight",
    "grad_norm_bound",
    "loss_divergence",
    "random_guess",
    "grad_exploding",
)
"""classes that a policy may act on"""


class Incidents:
    """One thread adds them; any may ask."""

    def __init__(self) -> None:
        self._by_id: dict[int, Incident] = {}
        self.count = 0
        """of the run, those included that are no longer kept"""

    def add(self, incident: Incident) -> None:
        self.count = max(self.count, incident.id)  # one sequence per run, from 1
        self._by_id[incident.id] = incident
        while len(self._by_id) > _MOST:
            del self._by_id[min(self._by_id)]

    def all(self) -> tuple[Incident, ...]:
        """The oldest first."""
        return tuple(incident for _, incident in sorted(self._by_id.copy().items()))

    def of_policy(self, seconds: float) -> Incident | None:
        """The latest that is open and that a policy may act on. Waits so long for one to be added."""
        until = time.monotonic() + seconds
        while True:
            found = [one for one in self.all() if one.closed_at is None and one.kind in _OF_POLICIES]
            if found or time.monotonic() > until:
                return found[-1] if found else None
            time.sleep(0.01)
