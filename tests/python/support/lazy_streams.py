"""A device that is simulated on the CPU, as unkind as a real one may be: what is put on a stream other than the main
one runs as late as the events between streams allow, or at moments that a seed decides."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

DEVICE = torch.device("cuda", 0)


@dataclass
class Event:
    stream: str
    position: int
    number: int


@dataclass
class _Queue:
    entries: list = field(default_factory=list)
    done: int = 0


class LazyStreams:
    """Streams are names. What runs on "main" is what the program itself does, so waits of it run at once. `log` has the
    calls in their order."""

    def __init__(self, seed: int | None = None) -> None:
        """Without a seed, everything is as late as it can be."""
        self._queues: dict[str, _Queue] = {}
        self._random = None if seed is None else random.Random(seed)
        self._events = 0
        self.now_on = "main"
        self.log: list[tuple] = []
        self.captures = False
        self.lands = True
        """False: no event is ever found to have happened by asking"""

    # What the keeper calls -----------------------------------------------------------------------

    def current(self, device):
        return self.now_on

    def side(self, device):
        return "side"

    def record(self, stream):
        self._events += 1
        event = Event(stream, len(self._queue(stream).entries), self._events)
        self.log.append(("record", stream, event.number))
        return event

    def wait(self, stream, event):
        self.log.append(("wait", stream, event.number))
        self.put(stream, lambda: self._run_to(event))

    def copy(self, stream, to, source):
        self.log.append(("copy", stream, len(to)))

        def copies():
            with torch.no_grad():  # it may be anyone who waits for them
                for target, tensor in zip(to, source):
                    target.copy_(tensor)

        self.put(stream, copies)

    def has_landed(self, event):
        self.log.append(("query", event.number))
        self._wander()
        if self.lands and self._random is None:
            self._run_to(event)
        return self._queue(event.stream).done >= event.position

    def wait_on_host(self, event):
        self.log.append(("host waits", event.number))
        self._run_to(event)

    def synchronize(self, device):
        self.log.append(("synchronize",))
        for stream in list(self._queues):
            self._run(stream, len(self._queue(stream).entries))

    def is_capturing(self):
        return self.captures

    # What a program does -------------------------------------------------------------------------

    def put(self, stream, work):
        """`work` runs on the stream: at once on the main one."""
        queue = self._queue(stream)
        queue.entries.append(work)
        if stream == "main":
            self._run(stream, len(queue.entries))
        self._wander()

    def run_all(self):
        for stream in list(self._queues):
            self._run(stream, len(self._queue(stream).entries))

    def _wander(self):
        """Some streams go on a little."""
        if self._random is not None:
            for stream in sorted(self._queues):
                if self._random.random() < 0.3:
                    self._run(stream, self._queue(stream).done + 1)

    def _queue(self, stream):
        return self._queues.setdefault(stream, _Queue())

    def _run_to(self, event):
        self._run(event.stream, event.position)

    def _run(self, stream, position):
        queue = self._queue(stream)
        while queue.done < min(position, len(queue.entries)):
            work = queue.entries[queue.done]
            queue.done += 1
            work()
