"""Copies between living tensors and an arena, in an order that holds on the device without the host waiting.

A snapshot's copies run on a side stream behind every stream that writes. Those streams wait at once for the copies of
what a forward pass may write, and for the others before the next optimizer step. A restore runs on the current stream,
behind the writers and behind snapshots that still read, and the writers wait for it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from gradvane._governor.tensors import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from gradvane._governor.streams import Streams


@dataclass
class Flight:
    """Copies of one snapshot that may still be under way."""

    events: dict[torch.device, Any] = field(default_factory=dict)
    """behind the last copy of each device"""
    held: list[Tensor] = field(default_factory=list)
    """their memory must not be given to others before the copies have landed"""
    versions: list[tuple[Tensor, int]] = field(default_factory=list)
    """of tensors that nothing but an optimizer step may write until then"""
    is_gated: bool = True


class Copies:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.own_calls: Callable[[int], object] = lambda delta: None
        """told +1 before calls to a device, and -1 after them: they are not the training's"""
        self._writers: dict[torch.device, list[Any]] = {}
        self.synchronizes_devices = False
        """the fallback: a restore waits for everything on a device instead of ordering streams"""
        self.device_synchronizations = 0
        self.host_waits = 0

    def writes_on(self, device: torch.device, stream: Any) -> None:
        """The stream may write parameters or state."""
        streams = self._writers.setdefault(device, [])
        if stream not in streams:
            streams.append(stream)

    def out(self, to: Sequence[Tensor], source: Sequence[Tensor], at_once: set[int], overlaps: bool) -> Flight:
        """Copies `source` to the host. With `overlaps`, no stream waits for those that are not `at_once` before
        gate(); what CPUs hold is copied before this returns."""
        flight = Flight()
        by_device = _by_device(source)
        for device in sorted(by_device, key=lambda device: device.type == "cpu"):  # the devices' run meanwhile
            indices = by_device[device]
            if device.type == "cpu":
                _copy_on_host([to[i] for i in indices], [source[i] for i in indices])
                continue
            with self._own():
                side = self._streams.side(device)
                writers = self._writers_of(device)
                self._order(side, writers)
                first = [i for i in indices if i in at_once or not overlaps]
                rest = [i for i in indices if i not in at_once and overlaps]
                if first:
                    self._streams.copy(side, [to[i] for i in first], [source[i] for i in first])
                    flight.events[device] = done = self._streams.record(side)
                    for writer in writers:
                        self._streams.wait(writer, done)
                if rest:
                    self._streams.copy(side, [to[i] for i in rest], [source[i] for i in rest])
                    flight.events[device] = self._streams.record(side)
                    flight.is_gated = False
                    flight.versions += [(source[i], source[i]._version) for i in rest]
            flight.held += [source[i] for i in indices]
        return flight

    def gate(self, flight: Flight) -> bool:
        """Before an optimizer writes. False if something else wrote what was being copied."""
        if flight.is_gated:
            return True
        with self._own():
            for device, event in flight.events.items():
                for writer in self._writers_of(device):
                    self._streams.wait(writer, event)
        flight.is_gated = True
        is_unchanged = all(tensor._version == version for tensor, version in flight.versions)
        flight.versions.clear()
        return is_unchanged

    def has_landed(self, flight: Flight) -> bool:
        with self._own():
            landed = all(self._streams.has_landed(event) for event in flight.events.values())
        if landed:
            flight.held.clear()
        return landed

    def land(self, flight: Flight) -> None:
        """The host waits until the copies have landed."""
        with self._own():
            for event in flight.events.values():
                if not self._streams.has_landed(event):
                    self.host_waits += 1
                    self._streams.wait_on_host(event)
        flight.held.clear()

    def back(self, to: Sequence[Tensor], source: Sequence[Tensor]) -> Flight:
        """Copies from the host into living tensors. The flight is over when the host memory is no longer read."""
        flight = Flight()
        by_device = _by_device(to)
        for device, indices in by_device.items():
            targets, sources = [distinct(to[i]) for i in indices], [source[i] for i in indices]
            if device.type == "cpu":
                _copy_on_host(targets, sources)
                continue
            with self._own():
                current = self._streams.current(device)
                writers = self._writers_of(device)
                if self.synchronizes_devices:
                    self.device_synchronizations += 1
                    self._streams.synchronize(device)
                else:
                    self._order(current, [*writers, self._streams.side(device)])
                self._streams.copy(current, targets, sources)
                flight.events[device] = done = self._streams.record(current)
                for writer in writers:
                    if writer != current:
                        self._streams.wait(writer, done)
        return flight

    def is_capturing(self) -> bool:
        return self._streams.is_capturing()

    @contextlib.contextmanager
    def _own(self) -> Iterator[None]:
        self.own_calls(1)
        try:
            yield
        finally:
            self.own_calls(-1)

    def _order(self, stream: Any, before: list[Any]) -> None:
        for other in before:
            if other != stream:
                self._streams.wait(stream, self._streams.record(other))

    def _writers_of(self, device: torch.device) -> list[Any]:
        self.writes_on(device, self._streams.current(device))
        return self._writers[device]


def device_of(tensor: Tensor) -> torch.device:
    return tensor.device


def _by_device(tensors: Sequence[Tensor]) -> dict[torch.device, list[int]]:
    found: dict[torch.device, list[int]] = {}
    for i, tensor in enumerate(tensors):
        found.setdefault(device_of(tensor), []).append(i)
    return found


def _copy_on_host(to: list[Tensor], source: list[Tensor]) -> None:
    if to:
        torch._foreach_copy_(to, source)
