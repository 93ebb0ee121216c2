"""The store of the program's default process group, over a connection of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime


def own_store(timeout: datetime.timedelta) -> Any:
    """What the job does on its own connection waits for none of ours, and has none of our timeouts. Another store than a
    TCPStore is the job's own. Raises what c10d raises."""
    import torch.distributed as dist

    store: Any = dist.distributed_c10d._get_default_store()
    if isinstance(getattr(store, "_underlying_non_prefix_store", store), dist.TCPStore):
        store = store.clone()
        store.set_timeout(timeout)
    return store
