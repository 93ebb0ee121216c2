"""Parameters that are spread over processes (FSDP2, tensor parallelism: DTensor): which part each process has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_STAGES = ("pp", "pipe", "stage")


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "_local_tensor")


def shards_of(params: list[Any]) -> list[tuple[float, int]]:
    """For each parameter the share of its local squares that counts (replicas once over all processes), and
    the row-major index of its first local element, -1 where its part is not one range."""
    meshes = {id(param.device_mesh): param.device_mesh for param in params if is_sharded(param)}
    replicas = {key: _replicas_of(mesh) for key, mesh in meshes.items()}
    whole = max((mesh.size() * replicas[key] for key, mesh in meshes.items()), default=1)
    return [_shard_of(param, replicas[id(param.device_mesh)]) if is_sharded(param) else (1.0 / whole, 0)
            for param in params]


def _replicas_of(mesh: Any) -> int:
    """How many processes at other places of the mesh that `mesh` was cut out of have the same parameters: tensor
    parallelism under DistributedDataParallel has its parameters on the mesh of one replica. Stages of a pipeline have
    parameters of their own, and are known by their dimension's name alone."""
    import torch

    try:
        root = _root_of(mesh)
        names, places = root.mesh_dim_names, root.mesh
        ours = torch.isin(places, mesh.mesh).nonzero()  # coordinates of the ranks of `mesh`
        replicas = 1
        for dim, name in enumerate(names or ()):
            is_stage = name.lower().startswith(_STAGES)
            if not is_stage and ours[:, dim].unique().numel() == 1:
                replicas *= places.size(dim)
        return replicas
    except Exception:  # it is a mesh of its own
        return 1


def _root_of(mesh: Any) -> Any:
    """Private in each version of torch."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed.device_mesh import _mesh_resources  # type: ignore[attr-defined]

    return _mesh_resources.get_root_mesh(mesh)


def _shard_of(param: Any, elsewhere: int) -> tuple[float, int]:
    """`elsewhere`: as _replicas_of() its mesh."""
    replicas = elsewhere
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
