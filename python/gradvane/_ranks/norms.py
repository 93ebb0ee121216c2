"""Norms over all ranks, added up through a key-value store that ranks never wait at.

Every rank but 0 leaves what it has under a key of its own. Rank 0 reads these keys with one request, adds up
what all ranks have, and leaves the sums under one key, which the others read. So a step costs a few requests of
each rank, whatever the number of ranks. A key is overwritten, never deleted: there are 2 N of them.

Steps are forgotten after PATIENCE. A look that finds nothing new doubles the pause before the next one, and a
look that does halves it, so a rank that is missing costs less than one that is there.

Keys may hold values of an earlier run (a second process group, a restart that kept the store). So each rank
draws a token. Rank 0 answers a token with its own, once for each rank, and what does not carry rank 0's token
is not believed.

Nothing in here sleeps, waits or has a thread: courier.py does.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE = 2.0
"""seconds that the worker holds a step's record back for its norm (HeldRecords::kPatience)"""
MOST_ITEMS = 128
"""steps in one value, so it has 2.6 kB at most; one step is 36 bytes"""
REQUESTS_A_SECOND = 1000
"""aimed at, of all ranks together; with more than 167 ranks, three of each rank in _LONG"""
_SHORTEST = 0.05
_LONGEST = 0.75 * PATIENCE
_LONG = 0.25 * PATIENCE
"""from here on pauses grow slowly: a rank that is one step of a second behind is still met"""
_HEADER = struct.Struct("<QQ")
_ITEM = struct.Struct("<qid")

Contribution = tuple[int, int, float]
"""step, optimizer, norm"""
_Step = tuple[int, int]


class Store(Protocol):
    """What is used of torch.distributed.Store. get() and multi_get() wait for keys that are missing, so they are
    only asked for keys that check() has found."""

    def set(self, key: str, value: bytes) -> None: ...
    def check(self, keys: list[str]) -> bool: ...
    def get(self, key: str) -> bytes: ...
    def multi_get(self, keys: list[str]) -> list[bytes]: ...
    def multi_set(self, keys: list[str], values: list[bytes]) -> None: ...


class RankNorms:
    """One rank's part of the exchange. Times are seconds of any clock that does not go back.

    turn() raises what the store raises: then the exchange is over.
    """

    def __init__(self, store: Store, rank: int, size: int, token: int, now: float) -> None:
        self._store = store
        self._rank = rank
        self._token = token
        self._others = list(range(1, size))
        self._pause_between = min(_LONG, max(_SHORTEST, 3 * size / REQUESTS_A_SECOND))
        self._pause = self._pause_between
        self._look_at = now + self._pause
        self._greets_until = now + PATIENCE
        self._waiting: dict[_Step, tuple[float, float]] = {}
        """norms without a sum yet, and until when they wait"""
        self._sums: dict[_Step, tuple[float, float]] = {}
        """rank 0: what was added up, and when"""
        self._greeted: dict[int, int] = {}
        """rank 0: the token of each rank that has its answer"""
        self._has_all_keys = False
        self._leader = token if rank == 0 else None
        """rank 0's token, once it has answered"""
        self._last_sums = b""
        self._added_up_at = -math.inf
        self._post([])

    @property
    def pause(self) -> float:
        """Seconds to let go by after each turn. Longer when others are missing."""
        return max(self._pause_between, self._pause / 4)

    def seconds_to_next_look(self, now: float) -> float | None:
        """How long until turn() has something to do even without a contribution; None: there is nothing."""
        return max(0.0, self._look_at - now) if self._is_curious(now) else None

    def seconds_to_be_read(self, now: float) -> float:
        """How long the other ranks may need for the latest sums: with rank 0's process the store may go."""
        return max(0.0, self._added_up_at + _LONG - now)

    def turn(self, now: float, new: Iterable[Contribution]) -> list[Contribution]:
        """Takes what this rank contributes; returns the norms over all ranks that have become known."""
        was_curious = self._is_curious(now)
        has_new = False
        for step, optimizer, norm in new:
            self._waiting[step, optimizer] = norm, now + PATIENCE
            has_new = True
        while len(self._waiting) > MOST_ITEMS:
            del self._waiting[next(iter(self._waiting))]
        self._waiting = {step: (norm, until) for step, (norm, until) in self._waiting.items() if until > now}
        if self._waiting and not was_curious:
            self._look_at = now + self._pause
        found: list[Contribution] = []
        if self._is_curious(now) and now >= self._look_at:
            leader = self._leader
            progress = self._add_up(now, found) if self._rank == 0 else self._read_sums(found)
            self._pause = (max(self._pause_between, self._pause / 2) if progress
                           else min(_LONGEST, self._pause * (1.1 if self._pause >= _LONG else 2)))
            self._look_at = now + self._pause
            has_new = has_new or self._leader != leader
        if has_new and self._rank != 0:
            self._post([(*step, norm) for step, (norm, _) in self._waiting.items()])
        return found

    def _is_curious(self, now: float) -> bool:
        return bool(self._waiting) or (now < self._greets_until and not self._knows_all())

    def _knows_all(self) -> bool:
        return len(self._greeted) == len(self._others) if self._rank == 0 else self._leader is not None

    def _post(self, items: list[Contribution]) -> None:
        """What the others may read of this rank."""
        value = _HEADER.pack(self._token, self._leader or 0) + b"".join(_ITEM.pack(*item) for item in items)
        self._store.set("sums" if self._rank == 0 else f"part/{self._rank}", value)

    # Every rank but 0 -------------------------------------------------------------------------------

    def _read_sums(self, found: list[Contribution]) -> bool:
        """Whether there was anything new."""
        if self._leader is None:
            return self._meet()
        value = bytes(self._store.get("sums"))
        if value == self._last_sums:
            return False
        self._last_sums = value
        message = _read(value)
        if message is None or message[0] != self._leader:
            self._leader = None  # another rank 0: it does not know this rank yet
            self._last_sums = b""
            return False
        for step, optimizer, norm in message[2]:
            if self._waiting.pop((step, optimizer), None) is not None:
                found.append((step, optimizer, norm))
        return True

    def _meet(self) -> bool:
        """Whether rank 0 has answered this rank's token. It leaves its sums first, so they are there then."""
        key = f"hello/{self._rank}"
        self._has_all_keys = self._has_all_keys or self._store.check([key])
        if not self._has_all_keys:
            return False
        message = _read(bytes(self._store.get(key)))
        if message is None or message[1] != self._token:
            return False
        self._leader = message[0]
        return True

    # Rank 0 -----------------------------------------------------------------------------------------

    def _add_up(self, now: float, found: list[Contribution]) -> bool:
        """Whether there was anything new."""
        keys = [f"part/{rank}" for rank in self._others]
        self._has_all_keys = self._has_all_keys or self._store.check(keys)
        if not self._has_all_keys:
            return False
        messages = [_read(bytes(value)) for value in self._store.multi_get(keys)]
        has_met = self._answer(messages)
        parts = [{item[:2]: item[2] for item in message[2]}
                 for message in messages if message is not None and message[1] == self._token]
        if len(parts) < len(self._others):
            return has_met
        for step in [step for step in self._waiting if all(step in part for part in parts)]:
            norm = math.hypot(self._waiting.pop(step)[0], *(part[step] for part in parts))
            self._sums[step] = norm, now
            found.append((*step, norm))
        if found:
            latest = [(step, norm) for step, (norm, when) in self._sums.items() if when > now - 2 * PATIENCE]
            self._sums = {step: self._sums[step] for step, _ in latest[-MOST_ITEMS:]}
            self._post([(*step, norm) for step, (norm, _) in self._sums.items()])
            self._added_up_at = now
        return has_met or bool(found)

    def _answer(self, messages: list[_Message | None]) -> bool:
        """Gives each rank that does not have it yet this rank's token, beside the rank's own."""
        new = {rank: message[0] for rank, message in zip(self._others, messages)
               if message is not None and message[1] != self._token and self._greeted.get(rank) != message[0]}
        if new:
            self._sums.clear()  # they may be of steps that this rank has another number for
            self._post([])
            self._store.multi_set([f"hello/{rank}" for rank in new],
                                  [_HEADER.pack(self._token, token) for token in new.values()])
            self._greeted.update(new)
        return bool(new)


_Message = tuple[int, int, list[Contribution]]
"""the sender's token, the one that it answers, and what it brings"""


def _read(value: bytes) -> _Message | None:
    """None where it is nothing of ours."""
    body = value[_HEADER.size:]
    if len(value) < _HEADER.size or len(body) % _ITEM.size:
        return None
    token, answered = _HEADER.unpack_from(value)
    return token, answered, list(_ITEM.iter_unpack(body))
