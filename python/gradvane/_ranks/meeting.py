"""Where the records of all ranks meet in a step: in shared memory on a node, over gloo between nodes."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

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
_NAME_BYTES = 64
_SLICE = 0.5
"""seconds of a wait, until the processes of ranks that are missing are looked for"""


class Meeting(Protocol):
    groups: list[Any]
    """of the agent's own, of which this rank is a member"""

    def exchange(self, record: bytes) -> list[bytes]:
        """The records of all ranks, by rank. Raises RuntimeError if one has gone, or does not come in time."""
        ...


def meeting_of_all(patience: datetime.timedelta, size: int) -> Meeting:
    """Made by all ranks of the program at the same time, for their default group and records of `size` bytes. Raises
    RuntimeError if one of them does not come.

    The groups are none of torch's registry. dist.new_group() counts the groups of a process, and names the next one by
    that: if a rank does not take part, it names each later group of the program's otherwise than the other ranks do.
    """
    global _meetings
    _meetings += 1
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun's store outlives the ranks that failed
    store = dist.PrefixStore(f"gradvane/meeting/{attempt}/{_meetings}", own_store(patience))

    def group_of(name: str, ranks: list[int]) -> Any:
        return dist.ProcessGroupGloo(dist.PrefixStore(name, store), ranks.index(dist.get_rank()), len(ranks), patience)

    group = group_of("all", list(range(dist.get_world_size())))
    try:
        return _meeting_in(group, group_of, patience.total_seconds(), size)
    except BaseException:
        left.append(group)
        raise


def _meeting_in(group: Any, group_of: Callable[[str, list[int]], Any], patience: float, size: int) -> Meeting:
    nodes = ranks_by_node(_gathered(_node(), group))
    if len(nodes) == group.size():  # one rank on each
        return OverGloo(group)
    mine = next(ranks for ranks in nodes if group.rank() in ranks)
    records = _board(size, mine, group, patience)
    if records is None:
        return OverGloo(group)
    if len(nodes) == 1:
        return OnNode(records, group)
    answer = _board(1 + len(nodes) * _block(nodes, size), mine, group, patience)
    if answer is None:
        return OverGloo(group)
    first_ranks = [ranks[0] for ranks in nodes]
    leaders = group_of("leaders", first_ranks) if group.rank() in first_ranks else None
    return OverNodes(records, answer, nodes, size, leaders, group)


def ranks_by_node(told: list[bytes]) -> list[list[int]]:
    """`told`: by rank, something that is the same for the ranks of a node alone. Each node's first rank leads it."""
    nodes: dict[bytes, list[int]] = {}
    for rank, node in enumerate(told):
        nodes.setdefault(node, []).append(rank)
    return list(nodes.values())


def _block(nodes: list[list[int]], size: int) -> int:
    """Bytes that a node sends: whether its ranks are all there, and as many records as the largest node has."""
    return 1 + size * max(len(ranks) for ranks in nodes)


class OverGloo:
    """Where no two ranks are on one node, or a node has no shared memory."""

    def __init__(self, group: Any) -> None:
        self.groups = [group]

    def exchange(self, record: bytes) -> list[bytes]:
        return _gathered(record, self.groups[0])


class Board:
    """The ranks of a node, in order."""

    def __init__(self, board: _native.NodeBoard, ranks: list[int], patience: float) -> None:
        self._board = board
        self.ranks = ranks
        self._patience = patience

    def tell(self, told: bytes) -> None:
        self._board.tell(told)

    def wait(self) -> None:
        """For all of them. Raises RuntimeError; Ctrl-C ends it."""
        until = time.monotonic() + self._patience
        while not self._board.wait(_SLICE):
            gone = self._board.gone()
            if gone is not None and not self._board.wait(0):
                raise RuntimeError(f"rank {self.ranks[gone]} has left")
            if time.monotonic() > until:
                raise RuntimeError(f"no word from a rank for {self._patience:g} s")

    def told(self) -> list[bytes]:
        return [self._board.told_by(number) for number in range(len(self.ranks))]

    def told_by_leader(self) -> bytes:
        return self._board.told_by(0)


class OnNode:
    """Nothing goes through a socket or another thread."""

    def __init__(self, board: Board, group: Any) -> None:
        self.groups = [group]
        self._board = board

    def exchange(self, record: bytes) -> list[bytes]:
        self._board.tell(record)
        self._board.wait()
        return self._board.told()


class OverNodes:
    """The first rank of each node takes its records to those of the other nodes, and brings theirs."""

    def __init__(self, records: Board, answer: Board, nodes: list[list[int]], size: int, leaders: Any, group: Any) -> None:
        self.groups = [group] if leaders is None else [group, leaders]
        self._records, self._answer = records, answer
        self._nodes, self._size, self._block_size = nodes, size, _block(nodes, size)
        self._leaders = leaders
        """None on a rank that leads no node"""

    def exchange(self, record: bytes) -> list[bytes]:
        self._records.tell(record)
        if self._leaders is None:
            self._records.wait()
            self._answer.tell(b"")
            self._answer.wait()
            return self._by_rank(self._answer.told_by_leader())
        answer = b"\0"  # other ranks of this node need not wait for what will not come
        try:
            answer = b"\1" + b"".join(_gathered(self._block(), self._leaders))
        finally:
            self._answer.tell(answer)
        return self._by_rank(answer)

    def _block(self) -> bytes:
        """Also where a rank of this node is missing: the other nodes wait for it."""
        try:
            self._records.wait()
            told = b"\1" + b"".join(self._records.told())
        except RuntimeError:
            told = b"\0"
        return told.ljust(self._block_size, b"\0")

    def _by_rank(self, answer: bytes) -> list[bytes]:
        if answer[0] == 0:
            raise RuntimeError("the ranks of other nodes could not be reached")
        records: dict[int, bytes] = {}
        for number, ranks in enumerate(self._nodes):
            block = answer[1 + number * self._block_size :][: self._block_size]
            if block[0] == 0:
                raise RuntimeError(f"a rank of the node of rank {ranks[0]} has gone")
            for place, rank in enumerate(ranks):
                records[rank] = block[1 + place * self._size :][: self._size]
        return [records[rank] for rank in sorted(records)]


def _board(size: int, ranks: list[int], group: Any, patience: float) -> Board | None:
    """For the ranks of this node. None on all ranks unless it could be had on all nodes."""
    rank = group.rank()
    name = ""
    if rank == ranks[0]:
        try:
            name = _native.make_node_board(len(ranks), size)
        except RuntimeError:  # no shared memory: small containers may have none
            name = ""
    try:
        names = _gathered(name.encode().ljust(_NAME_BYTES, b"\0"), group)
        board = None
        if name_of_all := names[ranks[0]].rstrip(b"\0").decode():
            try:
                board = _native.NodeBoard(name_of_all, ranks.index(rank), len(ranks), size)
            except RuntimeError:
                board = None
        joined = _gathered(bytes([board is not None]), group)
    finally:
        if name:
            _native.remove_node_board(name)
    return Board(board, ranks, patience) if board is not None and all(one == b"\1" for one in joined) else None


def _node() -> bytes:
    return hashlib.sha256(_native.this_node().encode()).digest()


def _gathered(told: bytes, group: Any) -> list[bytes]:
    mine = torch.frombuffer(bytearray(told), dtype=torch.uint8)
    all_of_them = [torch.empty_like(mine) for _ in range(group.size())]
    group.allgather([all_of_them], [mine]).wait()
    return [bytes(one.numpy()) for one in all_of_them]
