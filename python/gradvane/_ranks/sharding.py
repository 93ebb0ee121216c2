"""Parameters that are spread over processes (FSDP2, tensor parallelism: DTensor): which part each process has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


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
