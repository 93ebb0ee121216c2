"""Parameters that are spread over processes (FSDP2, tensor parallelism: DTensor), and the norm that their
gradients have together.

Each process reads its own part. What it brings to the norm goes through the store that the process group was
made with, from a thread of ours: training waits for none of it, and no collective is added.
"""

from __future__ import annotations

import logging
import math
import struct
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger("gradvane")
_KEPT = 256
"""contributions that a process leaves for the others to read"""
_PAUSE = 0.05
_ITEM = struct.Struct("<qid")


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "_local_tensor")


def shards_of(params: list[Tensor]) -> list[tuple[float, int]]:
    """For each parameter the share of its local squares that counts (replicas once over all processes), and
    the row-major index of its first local element, -1 where its part is not one range."""
    meshes = [param.device_mesh.size() for param in params if is_sharded(param)]  # type: ignore[attr-defined]
    whole = max(meshes, default=1)
    return [_shard_of(param) if is_sharded(param) else (1.0 / whole, 0) for param in params]


def _shard_of(param: Any) -> tuple[float, int]:
    replicas = 1
    for size, placement in zip(param.device_mesh.shape, param.placements):
        if placement.is_replicate():
            replicas *= size
    local = param._local_tensor
    if local.numel() == 0 or tuple(local.shape) == tuple(param.shape):
        return 1.0 / replicas, 0
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        _, offset = compute_local_shape_and_global_offset(param.shape, param.device_mesh, param.placements)
    except Exception:  # a private function: where it has gone, places are not told
        return 1.0 / replicas, -1
    is_range = all(o == 0 for o in offset[1:]) and tuple(local.shape[1:]) == tuple(param.shape[1:])
    return 1.0 / replicas, int(offset[0]) * math.prod(param.shape[1:]) if is_range else -1


class Courier:
    """Carries contributions between the processes of the default group while it exists."""

    def __init__(self, native: Any) -> None:
        import torch.distributed as dist

        self._native = native
        self._rank = dist.get_rank()
        self._size = dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()
        try:
            store = store.clone()  # a connection of our own: nobody waits behind a barrier of another's
        except (AttributeError, RuntimeError):
            pass
        self._store = store
        self._left: list[tuple[int, int, float]] = []
        self._waiting: dict[tuple[int, int], float] = {}
        self._is_over = False
        self._thread = threading.Thread(target=self._carry, name="gradvane-norms", daemon=True)

    @classmethod
    def start(cls, native: Any) -> Courier | None:
        """None where there is nobody to exchange with."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
            return None
        courier = cls(native)
        native.exchange_opens()
        courier._thread.start()
        return courier

    def stop(self) -> None:
        """Without waiting for others: what they still owe is not told."""
        self._is_over = True
        self._native.exchange_closes()
        self._thread.join(timeout=1.0)

    def _carry(self) -> None:
        try:
            while not self._is_over:
                self._post(self._native.take_contributions(_PAUSE if self._waiting else 1.0))
                if self._waiting:
                    self._collect()
        except Exception as error:  # the process group has gone, and its store with it
            logger.info("norms over all ranks are no longer exchanged: %s", str(error).splitlines()[0])
            self._native.exchange_closes()

    def _key(self, rank: int) -> str:
        return f"gradvane/norms/{rank}"

    def _post(self, contributions: list[tuple[int, int, float]]) -> None:
        if not contributions:
            return
        self._left = (self._left + contributions)[-_KEPT:]
        for step, optimizer, norm in contributions:
            self._waiting[step, optimizer] = norm
        while len(self._waiting) > _KEPT:
            del self._waiting[next(iter(self._waiting))]
        self._store.set(self._key(self._rank), b"".join(_ITEM.pack(*item) for item in self._left).hex())

    def _collect(self) -> None:
        others: list[dict[tuple[int, int], float]] = []
        for rank in range(self._size):
            if rank == self._rank:
                continue
            key = self._key(rank)
            if not self._store.check([key]):
                return
            data = bytes.fromhex(bytes(self._store.get(key)).decode())
            others.append({(step, optimizer): norm for step, optimizer, norm in _ITEM.iter_unpack(data)})
        for key_of_step in [key for key in self._waiting if all(key in other for other in others)]:
            own = self._waiting.pop(key_of_step)
            norm = math.hypot(own, *(other[key_of_step] for other in others))
            self._native.give_norm(*key_of_step, norm)
