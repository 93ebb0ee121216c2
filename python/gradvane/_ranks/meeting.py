"""Where the records of all ranks meet in a step: in shared memory if all ranks are on one node, else over gloo."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gradvane import _native

if TYPE_CHECKING:
    import datetime

_NAME_BYTES = 64
_SLICE = 0.5
"""seconds of a wait, until the processes of ranks that are missing are looked for"""


def meeting_of_all(patience: datetime.timedelta) -> OnNode | OverGloo:
    """Made by all ranks of the program at the same time, for their default group."""
    group = dist.new_group(backend="gloo", timeout=patience)
    try:
        board = _board_of(group)
    except BaseException:
        dist.destroy_process_group(group)
        raise
    return OverGloo(group) if board is None else OnNode(board, group, patience.total_seconds())


class OverGloo:
    def __init__(self, group: Any) -> None:
        self.group = group

    def exchange(self, record: bytes) -> list[bytes]:
        """The records of all ranks, by rank. Raises RuntimeError if one has gone, or does not come in time."""
        return _gathered(record, self.group)


class OnNode:
    """A tenth of the time, since nothing goes through a socket or another thread. The group is kept for its end."""

    def __init__(self, board: _native.NodeBoard, group: Any, patience: float) -> None:
        self.group = group
        self._board = board
        self._patience = patience

    def exchange(self, record: bytes) -> list[bytes]:
        """As OverGloo.exchange(). Ctrl-C ends it."""
        self._board.tell(record)
        until = time.monotonic() + self._patience
        while not self._board.wait(_SLICE):
            rank = self._board.gone()
            if rank is not None and not self._board.wait(0):
                raise RuntimeError(f"the process of rank {rank} has ended")
            if time.monotonic() > until:
                raise RuntimeError(f"no word from a rank for {self._patience:g} s")
        return self._board.told()


def _board_of(group: Any) -> _native.NodeBoard | None:
    """None unless all ranks are on one node, and each can have the board."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    name = ""
    if rank == 0:
        try:
            name = _native.make_node_board(ranks)
        except RuntimeError:  # no shared memory: small containers may have none
            name = ""
    try:
        told = _gathered(_node() + name.encode().ljust(_NAME_BYTES, b"\0"), group)
        board = None
        if len({one[:-_NAME_BYTES] for one in told}) == 1 and (name_of_all := told[0][-_NAME_BYTES:].rstrip(b"\0")):
            try:
                board = _native.NodeBoard(name_of_all.decode(), rank, ranks)
            except RuntimeError:
                board = None
        joined = _gathered(bytes([board is not None]), group)
    finally:
        if name:
            _native.remove_node_board(name)
    return board if all(one == b"\1" for one in joined) else None


def _node() -> bytes:
    """The same where processes have the same kernel, see each other's numbers, and share memory."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read()
        shared = os.stat("/dev/shm")
        what = f"{boot} {os.readlink('/proc/self/ns/pid')} {shared.st_dev} {shared.st_ino} {os.geteuid()}"
    except OSError:
        what = f"{os.urandom(16).hex()}"  # like nobody else
    return hashlib.sha256(what.encode()).digest()


def _gathered(told: bytes, group: Any) -> list[bytes]:
    mine = torch.frombuffer(bytearray(told), dtype=torch.uint8)
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(all_of_them, mine, group=group)
    return [bytes(one.numpy()) for one in all_of_them]
