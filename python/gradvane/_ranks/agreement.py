"""All ranks of a run tell each other of each step before the update, so that a policy acts on all of them or on none.

The exchange is one all_gather of a record of fixed size over a process group of our own, made at the first step. It has
the same place in every step, whatever a rank has seen, so that calls of different ranks always meet. A call that another
rank misses cannot pair with one of the program's.
"""

from __future__ import annotations

import datetime
import logging
from typing import Any

logger = logging.getLogger("gradvane")
_PATIENCE = datetime.timedelta(minutes=10)
"""for the slowest rank, which may write a checkpoint: as long as NCCL waits"""


class Agreement:
    """Belongs to the thread that trains."""

    def __init__(self, native: Any, patience: datetime.timedelta = _PATIENCE) -> None:
        self._native = native
        self._patience = patience
        self._group: Any = None
        self._world: int | None = None
        """which default group it was made of"""

    @property
    def is_on(self) -> bool:
        """False where ranks were never to agree, or cannot any more: then each decides alone."""
        return bool(self._native.agrees())

    def judge(self, optimizer: int) -> int:
        """The governor's verdict on the step in hand, the same on every rank. Waits for the slowest one."""
        record = self._native.tell(optimizer)
        try:
            records = self._exchange(record)
        except Exception as error:  # a rank that has gone, a group that was destroyed, a time that is over
            self._native_group_is_gone()
            return int(self._native.judge_alone(optimizer, (str(error).splitlines() or [type(error).__name__])[0]))
        return int(self._native.judge_together(optimizer, records))

    def stop(self) -> None:
        """The program's groups are left alone."""
        import torch.distributed as dist

        group, self._group = self._group, None
        if group is not None and dist.is_initialized() and id(dist.group.WORLD) == self._world:
            dist.destroy_process_group(group)

    def _exchange(self, record: bytes) -> list[bytes]:
        import torch
        import torch.distributed as dist

        if self._group is None:
            self._group = dist.new_group(backend="gloo", timeout=self._patience)
            self._world = id(dist.group.WORLD)
        mine = torch.frombuffer(bytearray(record), dtype=torch.uint8)
        told = [torch.empty_like(mine) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(told, mine, group=self._group)
        return [bytes(one.numpy()) for one in told]

    def _native_group_is_gone(self) -> None:
        """It may hang at its end, where a rank is missing: it is left to the process."""
        self._group = None
