"""What copies between a device and the host ask of its streams: a small interface, so that a test can put a recorder
or a simulated device in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class Streams(Protocol):
    """Streams and events are whatever the implementation makes; streams can be compared and hashed."""

    def current(self, device: torch.device) -> Any: ...
    def side(self, device: torch.device) -> Any:
        """Our own stream on the device, always the same one."""

    def record(self, stream: Any) -> Any:
        """An event behind everything that is on the stream so far."""

    def wait(self, stream: Any, event: Any) -> None:
        """What is put on the stream from now on comes after the event. The host does not wait."""

    def copy(self, stream: Any, to: Sequence[Tensor], source: Sequence[Tensor]) -> None:
        """Puts the copies on the stream."""

    def has_landed(self, event: Any) -> bool: ...
    def wait_on_host(self, event: Any) -> None: ...
    def synchronize(self, device: torch.device) -> None:
        """Waits for everything on the device."""

    def is_capturing(self) -> bool:
        """Whether the current stream records a graph: nothing may be asked of it then."""


class CudaStreams:
    def __init__(self) -> None:
        self._sides: dict[torch.device, torch.cuda.Stream] = {}

    def current(self, device: torch.device) -> torch.cuda.Stream:
        return torch.cuda.current_stream(device)

    def side(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._sides:
            self._sides[device] = torch.cuda.Stream(device)
        return self._sides[device]

    def record(self, stream: Any) -> torch.cuda.Event:
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def copy(self, stream: Any, to: Sequence[Tensor], source: Sequence[Tensor]) -> None:
        with torch.cuda.stream(stream):
            for target, tensor in zip(to, source):
                target.copy_(tensor, non_blocking=True)

    def has_landed(self, event: Any) -> bool:
        return bool(event.query())

    def wait_on_host(self, event: Any) -> None:
        event.synchronize()

    def synchronize(self, device: torch.device) -> None:
        torch.cuda.synchronize(device)

    def is_capturing(self) -> bool:
        return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
