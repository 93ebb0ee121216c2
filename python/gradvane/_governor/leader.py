"""Which of several optimizers ends an iteration of the loop: snapshots and rollbacks happen at its steps.

In a loop that steps a critic five times and then a generator, the state right after the generator's step is at one
place of the loop, and that after some step of the critic is not.
"""

from __future__ import annotations

_PATIENCE = 32
"""steps of one optimizer until another one, which has not stepped at all, is not waited for; and how many rounds a leader may
miss until they choose again"""


class Leader:
    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._leader: int | None = None
        self._since = 0
        self.longest_round = 1
        """most steps of any optimizer from one step of the leader to the next"""

    def stepped(self, key: int, everyone: list[int]) -> bool:
        """Whether the optimizer `key`, of `everyone` that is known, leads: its first step was the last of the first
        round. With a change of who is known, or of who steps, they choose again, from the next step on if one that was not waited
        for begins to step: its step may be anywhere in a round."""
        is_new = self._leader is not None and any(one not in self._steps for one in everyone)
        is_gone = any(known not in everyone for known in self._steps)
        is_idle = self._leader is not None and self._since >= _PATIENCE * self.longest_round
        is_late = self._leader is not None and self._steps.get(key) == 0
        if is_new or is_gone or is_idle or is_late:
            self._steps, self._leader, self._since, self.longest_round = {}, None, 0, 1
        if is_late:
            return False
        for one in everyone:
            self._steps.setdefault(one, 0)
        self._steps[key] = self._steps.get(key, 0) + 1
        if self._leader is None and (all(self._steps.values()) or self._steps[key] >= _PATIENCE):
            self._leader = key
        self._since += 1
        if self._leader != key:
            return False
        self.longest_round, self._since = max(self.longest_round, self._since), 0
        return True
