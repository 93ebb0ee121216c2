"""Where the records of all ranks meet in a step: in shared memory on a node, over gloo between nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gradvane import _native
from gradvane._ranks.stores import own_store

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

_meetings = 0
"""of this process so far: each has names of its own in the store"""
left: list[Any] = []
"""Groups in which a rank was missing: one of them may hang at its end, and is left to the end of the process."""


class Meeting:
    """Made by all ranks of the program at the same time, for their default group. Raises RuntimeError if one of them does not
    come.

    The groups are none of torch's registry. dist.new_group() counts the groups of a process, and names the next one by
    that: if a rank does not take part, it names each later group of the program's otherwise than the other ranks do.
    """

    def __init__(self, patience: datetime.timedelta) -> None:
        global _meetings
        _meetings += 1
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun's store outlives the ranks that failed
        store = dist.PrefixStore(f"gradvane/meeting/{attempt}/{_meetings}", own_store(patience))
        groups: list[Any] = []

        def group_of(name: str, ranks: list[int]) -> Any:
            groups.append(dist.ProcessGroupGloo(dist.PrefixStore(name, store), ranks.index(dist.get_rank()), len(ranks), patience))
            return groups[-1]

        self.groups = groups
        """of the agent's own, of which this rank is a member"""
        self._native = _native.Meeting(
            gather=gather_over(group_of("all", list(range(dist.get_world_size())))),
            among=lambda first_ranks: gather_over(group_of("leaders", first_ranks)),
            patience=patience.total_seconds(), node=_native.this_node())

    @property
    def place(self) -> str:
        """`node`, `nodes`, or `everywhere` if no two ranks are on one node, or a node has no shared memory. `not yet` before the
        first exchange."""
        return self._native.place

    def exchange(self, record: bytes) -> list[bytes]:
        """The records of all ranks, by rank. Raises RuntimeError if one has gone, or does not come in time. Ctrl-C ends the
        wait in shared memory."""
        return self._native.exchange(record)


def gather_over(group: Any) -> Callable[[bytes], list[bytes]]:
    """Takes as many bytes as every other rank of the group gives, and returns those of all, in their order."""
    def gather(told: bytes) -> list[bytes]:
        mine = torch.frombuffer(bytearray(told), dtype=torch.uint8)
        all_of_them = [torch.empty_like(mine) for _ in range(group.size())]
        group.allgather([all_of_them], [mine]).wait()
        return [bytes(one.numpy()) for one in all_of_them]

    return gather
