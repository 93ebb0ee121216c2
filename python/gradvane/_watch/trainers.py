"""Which threads train.

Gradients are torch's, and while Python's `p.grad = None` frees one, other threads run: a thread that looks at a gradient
then may get memory that is gone. So a thread looks at gradients that it trains itself, and at others only while no other
thread trains.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch


class Trainers:
    """The threads that have begun a backward pass, taken a step or cleared gradients, and live."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._here = threading.local()
        self._threads: list[weakref.ref[threading.Thread]] = []
        self._changing = threading.RLock()

    def note(self) -> None:
        """This thread is about to do one of these. A backward pass has threads of its own, which work for another."""
        if torch._C._current_graph_task_id() != -1:
            return
        if hasattr(self._here, "is_noted"):
            if len(self._threads) > 1:
                self._forget_ended()
            return
        me = threading.current_thread()
        with self._changing:
            if all(thread() is not me for thread in self._threads):  # an interrupt may have come in between
                self._threads.append(weakref.ref(me))
            self._forget_ended()
        self._here.is_noted = True

    def others_train(self) -> bool:
        me = threading.current_thread()
        return any(thread() is not me and _lives(thread) for thread in self._threads)

    def _forget_ended(self) -> None:
        with self._changing:
            self._threads = [thread for thread in self._threads if _lives(thread)]
            self._native.set_several_train(len(self._threads) > 1)


def _lives(reference: weakref.ref[threading.Thread]) -> bool:
    thread = reference()
    return thread is not None and thread.is_alive()
