"""Which rank this process has and which run it belongs to, as its process group knows."""

from __future__ import annotations

import contextlib
import datetime
import secrets
import time
from typing import Any

_ANSWER_WITHIN = datetime.timedelta(seconds=5)
_agents = 0
"""that this process has started while it had a process group"""


def of_group(launcher_run_id: str) -> dict[str, str]:
    """Options of this process: rank and world_size, and run_id where the launcher gave none. Empty without a process
    group. The store is asked once, and an answer that does not come within five seconds is done without."""
    global _agents
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return {}
    found = {"rank": str(dist.get_rank()), "world_size": str(dist.get_world_size())}
    if launcher_run_id or dist.get_world_size() < 2:
        return found
    _agents += 1
    with contextlib.suppress(Exception):  # a store that cannot do it, or is gone: each process has an identity of its own
        found["run_id"] = _agreed(dist, f"gradvane/run_id/{_agents}")
    return found


def _agreed(dist: Any, key: str) -> str:
    """The proposal of the first rank that comes. No rank waits for another."""
    store = dist.distributed_c10d._get_default_store()
    if isinstance(getattr(store, "_underlying_non_prefix_store", store), dist.TCPStore):
        store = store.clone()  # so that the timeout is that of our own connection
        store.set_timeout(_ANSWER_WITHIN)
    proposal = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(2)
    return str(store.compare_set(key, "", proposal).decode())
