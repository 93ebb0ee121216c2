"""All ranks of a run tell each other of each step before the update, so that a policy acts on all of them or on none.

Each rank tells one record of fixed size, and takes those of all others. The exchange has the same place in every step,
whatever a rank has seen, so that calls of different ranks always meet. A call that another rank misses cannot pair with
one of the program's: shared memory, or a process group of our own, is made for it at the first step.
"""

from __future__ import annotations

import datetime
import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradvane._ranks.meeting import Meeting

logger = logging.getLogger("gradvane")
_PATIENCE = datetime.timedelta(minutes=10)
"""for the slowest rank, which may write a checkpoint: as long as NCCL waits"""


class Agreement:
    """Belongs to the thread that trains."""

    def __init__(self, native: Any, patience: datetime.timedelta = _PATIENCE) -> None:
        self._native = native
        self._patience = patience
        self._meeting: Meeting | None = None
        self._world: int | None = None
        """which default group it was made of"""

    @property
    def is_on(self) -> bool:
        """False where ranks were never to agree, or cannot any more: then each decides alone."""
        return bool(self._native.agrees())

    def judge(self, optimizer: int) -> int:
        """The governor's verdict on the step in hand, the same on every rank. Waits for the slowest one."""
        record = self._native.tell(optimizer)
        began = time.perf_counter()
        try:
            records = self._exchange(record)
        except Exception as error:  # a rank that has gone, a group that was destroyed, a time that is over
            self._meeting = None  # a group may hang at its end, where a rank is missing: it is left to the process
            return int(self._native.judge_alone(optimizer, (str(error).splitlines() or [type(error).__name__])[0]))
        self._native.note_rank_wait(time.perf_counter() - began)
        return int(self._native.judge_together(optimizer, records))

    def stop(self) -> None:
        """The program's groups are left alone."""
        import torch.distributed as dist

        meeting, self._meeting = self._meeting, None
        if meeting is not None and dist.is_initialized() and id(dist.group.WORLD) == self._world:
            for group in meeting.groups:
                dist.destroy_process_group(group)

    def _exchange(self, record: bytes) -> list[bytes]:
        import torch.distributed as dist

        if self._meeting is None:
            from gradvane._ranks.meeting import meeting_of_all

            self._meeting = meeting_of_all(self._patience, len(record))
            self._world = id(dist.group.WORLD)
        return self._meeting.exchange(record)
