"""Which rank this process has and which run it belongs to, as its process group knows."""

from __future__ import annotations

import contextlib
import datetime
import queue
import secrets
import threading
import time
from typing import Any

from gradvane._process import threads
from gradvane._ranks.stores import own_store

_ANSWER_WITHIN = 5.0
"""seconds"""
_agents = 0
"""that this process has started while it had a process group"""


def of_group(lacks_run_id: bool) -> dict[str, str]:
    """Options of this process: rank and world_size, and run_id if it lacks one. Empty without a process group. The
    store is asked once, and an answer that does not come within five seconds is done without."""
    global _agents
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return {}
    found = {"rank": str(dist.get_rank()), "world_size": str(dist.get_world_size())}
    if not lacks_run_id or dist.get_world_size() < 2:
        return found
    _agents += 1
    if run_id := _agreed(dist, f"gradvane/run_id/{_agents}"):
        found["run_id"] = run_id
    return found


def _agreed(dist: Any, key: str) -> str:
    """The proposal of the first rank that comes; no rank waits for another. Empty where the store gives no answer in
    time: then each process has an identity of its own."""
    answer: queue.SimpleQueue[str] = queue.SimpleQueue()
    proposal = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(2)
    with contextlib.suppress(queue.Empty, RuntimeError):  # RuntimeError: no thread could be started
        # A connection to a server that is gone is tried for minutes, whatever the timeout of ours.
        thread = threading.Thread(target=_ask, args=(key, proposal, answer), name="gradvane-run-id", daemon=True)
        threads.start(thread)
        threads.keep(thread)
        return answer.get(timeout=_ANSWER_WITHIN)
    return ""


def _ask(key: str, proposal: str, answer: queue.SimpleQueue[str]) -> None:
    try:
        store = own_store(datetime.timedelta(seconds=_ANSWER_WITHIN))
        answer.put(str(store.compare_set(key, "", proposal).decode()))
    except Exception:  # a store that cannot do it
        answer.put("")
