"""All ranks of a run tell each other of each step before the update, so that a policy acts on all of them or on none.

Each rank tells one record of fixed size, and takes those of all others. The exchange has the same place in every step,
whatever a rank has seen, so that calls of different ranks always meet. A call that another rank misses cannot pair with
one of the program's: shared memory, or a process group of our own, is made for it at the first step.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from typing import TYPE_CHECKING, Any

from gradvane._watch.governing import STOP

if TYPE_CHECKING:
    from gradvane._ranks.meeting import Meeting

_LONGEST = datetime.timedelta(minutes=10)
_QUESTION = b"is any state bad? "
"""what a record of any_rank() begins with: no record of a step does"""


def patience_of(world: Any) -> datetime.timedelta:
    """How long the slowest rank is waited for, which may write a checkpoint: ten minutes, but half as long as the program's own
    group waits if that is less. While one rank waits for the agreement, others may wait in a collective of the program for that
    rank, and theirs must not time out first."""
    import torch

    timeouts: list[datetime.timedelta] = []
    for device in ("cpu", "cuda"):
        with contextlib.suppress(Exception):  # no backend for it, or one without options
            timeouts.append(world._get_backend(torch.device(device)).options._timeout)
    return min([_LONGEST, *(timeout / 2 for timeout in timeouts)])


class Agreement:
    """Belongs to the thread that trains."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._patience: datetime.timedelta | None = None
        """None: as patience_of()"""
        self._meeting: Meeting | None = None
        self._bytes = 0
        """of a record"""
        self._lost = ""
        """why the agreement has ended outside a step; the next step says it"""
        self.stops = False
        """all ranks stop, by what they have judged together"""

    @property
    def is_on(self) -> bool:
        """False where ranks were never to agree, or cannot any more: then each decides alone."""
        return bool(self._native.agrees())

    def judge(self, optimizer: int) -> int:
        """The governor's verdict on the step in hand, the same on every rank. Waits for the slowest one."""
        if self._lost:
            return self._alone(optimizer, self._lost)
        record = self._native.tell(optimizer)
        began = time.perf_counter()
        try:
            records = self._exchange(record)
        except Exception as error:
            return self._alone(optimizer, _why(error))
        except BaseException:  # Ctrl-C: the others need not wait for a rank that may never come again
            self._alone(optimizer, "interrupted")
            raise
        self._native.note_rank_wait(time.perf_counter() - began)
        verdict = int(self._native.judge_together(optimizer, records))
        self.stops |= verdict == STOP and self.is_on
        return verdict

    def any_rank(self, mine: bool) -> bool | None:
        """Whether it is so on any rank: the same answer on each. All of them ask at the same place, where all of them have
        stopped. Waits for the slowest one. None where one rank has stopped alone: the others would not ask."""
        if not self.stops or not self.is_on or self._lost:
            return None
        try:
            answers = self._exchange((_QUESTION + bytes([mine])).ljust(self._bytes, b"\0"))
        except Exception as error:
            self._lost = _why(error)
        else:
            if all(answer.startswith(_QUESTION) for answer in answers):
                return any(answer[len(_QUESTION)] for answer in answers)
            self._lost = "a rank has asked about a checkpoint, and another one has not"
        self._leave()
        return None

    def _alone(self, optimizer: int, why: str) -> int:
        self._leave()
        return int(self._native.judge_alone(optimizer, why))

    def stop(self) -> None:
        """Lets go of the groups, which ends them."""
        self._meeting = None

    def _leave(self) -> None:
        """The others learn it from the shared memory, whose end this is. The groups stay."""
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            from gradvane._ranks.meeting import left

            left.extend(meeting.groups)

    def _exchange(self, record: bytes) -> list[bytes]:
        import torch.distributed as dist

        if self._meeting is None:
            from gradvane._ranks.meeting import Meeting

            self._meeting = Meeting(self._patience or patience_of(dist.group.WORLD))
        self._bytes = len(record)
        return self._meeting.exchange(record)


def _why(error: Exception) -> str:
    """A rank that has gone, or a time that is over."""
    return (str(error).splitlines() or [type(error).__name__])[0]
