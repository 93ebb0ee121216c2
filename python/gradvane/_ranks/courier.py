"""The thread that carries norms between ranks, and its way to the store of the process group.

Training waits for none of it, and no collective is added. What is exchanged, and how often, is norms.py's.
"""

from __future__ import annotations

import datetime
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

from gradvane._log import logger
from gradvane._process import threads
from gradvane._ranks import sharding
from gradvane._ranks.norms import RankNorms
from gradvane._ranks.stores import own_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

_ANSWER_WITHIN = datetime.timedelta(seconds=5)
_PREFIX = "gradvane/norms/"


class NormExchange:
    """A run's courier: there is one while it watches sharded parameters and the process group lasts."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._courier: Courier | None = None

    def exchange(self, params: Iterable[Tensor]) -> None:
        """Begins where one of `params` is sharded."""
        if self._courier is not None and not self._courier.has_ended:
            return
        if not any(sharding.is_sharded(param) for param in params):
            return
        try:
            self._courier = Courier.start(self._native)
        except RuntimeError as error:  # no thread to be had: norms are of this process alone
            self._native.exchange_closes()
            logger.warning("norms over all ranks are not exchanged: %s", error)

    def stop(self) -> None:
        """What is on its way arrives first, if it still can."""
        if self._courier is None:
            return
        if self._courier.is_carrying:
            self._native.flush(1.0)
        self._courier.stop()
        self._courier = None


class Courier:
    """Carries contributions between the ranks of the default process group while that exists.

    It ends by itself when the group is destroyed or its store is gone. The second is counted as an error of the
    exporter norm_exchange, and logged.
    """

    def __init__(self, native: Any) -> None:
        import torch.distributed as dist

        self._native = native
        self._group = id(dist.group.WORLD)
        self._norms: RankNorms | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="gradvane-norms", daemon=True)

    @classmethod
    def start(cls, native: Any) -> Courier | None:
        """None where there is no other rank, or the option norm_exchange is off. Asks the store for nothing: the
        thread does."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
            return None
        if not native.exchange_opens():
            return None
        courier = cls(native)
        threads.start(courier._thread)
        return courier

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def is_carrying(self) -> bool:
        """Whether what the worker waits for may still come."""
        return not self.has_ended and self._has_group()

    def stop(self) -> None:
        """Takes half a second at most on rank 0, whose sums the others may still have to read, and another one where
        the store does not answer: that keeps the thread."""
        if self._norms is not None and self.is_carrying:
            self._over.wait(self._norms.seconds_to_be_read(time.monotonic()))
        self._over.set()
        self._native.exchange_closes()
        self._thread.join(timeout=0.5)
        threads.keep(self._thread)

    def _carry(self) -> None:
        try:
            self._norms = norms = _begin()
            while norms is not None and not self._over.is_set():
                wait = norms.seconds_to_next_look(time.monotonic())
                new = self._native.take_contributions(1.0 if wait is None else min(wait, 1.0))
                if self._over.is_set() or not self._has_group():
                    break
                for step, optimizer, norm in norms.turn(time.monotonic(), new):
                    self._native.give_norm(step, optimizer, norm)
                self._over.wait(norms.pause)
            self._native.exchange_closes()
        except Exception as error:  # rank 0 has gone, and the store with it
            if self._has_group():
                logger.info("norms over all ranks are no longer exchanged: %s", _first_line(error))
                self._native.exchange_failed()
            else:
                self._native.exchange_closes()

    def _has_group(self) -> bool:
        """Whether the default group is still the one that this began with. No reference of ours keeps it."""
        import torch.distributed as dist

        return dist.is_initialized() and id(dist.group.WORLD) == self._group


def _begin() -> RankNorms | None:
    """The exchange over a connection of our own to the default group's store: what the job does there waits for
    none of ours. None for a store that cannot do it: a FileStore would grow with every write."""
    import torch.distributed as dist

    own = own_store(_ANSWER_WITHIN)
    if not own.has_extended_api():
        logger.info("norms over all ranks are not exchanged: the process group's store has no multi_get")
        return None
    return RankNorms(dist.PrefixStore(_PREFIX, own), dist.get_rank(), dist.get_world_size(),
                     secrets.randbits(63) | 1, time.monotonic())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
