"""Whether tensors are finite, asked where they are made and answered later: one small result each, left on its
device, and all of them fetched together."""

from __future__ import annotations

import contextlib
import enum
import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

_PACK = 1024
"""answers that are put together while a step lasts: one by itself takes the smallest block of a device's allocator"""


class Finiteness(enum.IntEnum):
    """The worst that a tensor holds. Minus infinity is what masks are made of; the others seldom are meant."""

    UNKNOWN = -1
    FINITE = 0
    MINUS_INFINITY = 1
    PLUS_INFINITY = 2
    NAN = 3


def _layers() -> Any:
    """What stands between a call and the kernel: graphs, casts, and whatever a program puts there."""
    keys = torch._C.DispatchKey
    names = ("ADInplaceOrView", "AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "Python",
             "PythonTLSSnapshot", "PythonDispatcher", "AutogradCPU", "AutogradCUDA", "AutogradOther")
    layers = torch._C.DispatchKeySet(keys.AutogradFunctionality)
    for name in names:
        if hasattr(keys, name):
            layers = layers | torch._C.DispatchKeySet(getattr(keys, name))
    return layers


_LAYERS = _layers()


@dataclass
class _Asked:
    """What was asked on one stream and is answered in one type."""

    device: torch.device
    stream: Any
    """None on a CPU"""
    indices: list[int] = field(default_factory=list)
    packed: list[Tensor] = field(default_factory=list)
    """answers in fp64, in the order of the indices"""
    loose: list[Tensor] = field(default_factory=list)
    """those after them: smallest, largest, smallest, ..."""

    def pack(self) -> None:
        if self.loose:
            self.packed.append(torch.stack(self.loose).to(torch.float64))
            self.loose.clear()


@contextlib.contextmanager
def _straight() -> Iterator[None]:
    with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_LAYERS):
        yield


def _values_of(tensor: Tensor) -> Tensor | None:
    """The tensor that holds the values; None where there is none that could be read."""
    if torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
        return None
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested or tensor.is_mkldnn:
        return None
    if tensor.layout == torch.sparse_coo:
        return tensor._values()
    if tensor.layout == torch.sparse_csr:
        return tensor.values()
    return tensor if tensor.layout == torch.strided and torch._C._has_storage(tensor) else None


def _range_of(tensor: Tensor) -> tuple[Tensor, Tensor] | None:
    """The smallest and the largest element: both NaN where there is one, and infinite where that is all."""
    values = _values_of(tensor)
    if values is None or values.numel() == 0:
        return None
    if values.is_complex():
        values = torch.view_as_real(values.conj() if values.is_conj() else values)
    elif not values.is_floating_point():
        return None
    for dimension, stride in enumerate(values.stride()):
        if stride == 0:  # the same elements again
            values = values.narrow(dimension, 0, 1)
    if values.itemsize == 1:
        values = values.to(torch.float32)
    smallest, largest = torch.aminmax(values)
    return smallest, largest


def _judged(smallest: float, largest: float) -> Finiteness:
    if math.isnan(smallest) or math.isnan(largest):
        return Finiteness.NAN
    if largest == math.inf:
        return Finiteness.PLUS_INFINITY
    return Finiteness.MINUS_INFINITY if math.isinf(smallest) else Finiteness.FINITE


class FiniteChecks:
    """Any thread may add: a backward pass has threads of its own."""

    def __init__(self, own_calls: Callable[[int], None] = lambda delta: None) -> None:
        """`own_calls`: told +1 before calls that are Gradvane's own, and -1 after them."""
        self._own_calls = own_calls
        self._lock = threading.Lock()
        self._asked: dict[object, _Asked] = {}
        self._questions = 0

    def add(self, tensor: object) -> int:
        """Asks it of a tensor: one read of its memory, enqueued on the current stream of its device, without a
        wait, an autograd graph, a cast or anything that a dispatch mode could see. Returns the question's index;
        -1 for what cannot be asked: no number with a fraction, no element, no memory of its own (meta, fake, a
        subclass), a layout whose values do not lie in one tensor, no memory for the result."""
        if not isinstance(tensor, torch.Tensor):
            return -1
        self._own_calls(1)
        try:
            with _straight():
                found = _range_of(tensor)
                return -1 if found is None else self._keep(*found)
        except Exception:  # a type or device that cannot, no memory: not known
            return -1
        finally:
            self._own_calls(-1)

    def _keep(self, smallest: Tensor, largest: Tensor) -> int:
        device = smallest.device
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        with self._lock:
            asked = self._asked.setdefault((device, stream, smallest.dtype), _Asked(device, stream))
            asked.loose += (smallest, largest)
            asked.indices.append(self._questions)
            self._questions += 1
            if len(asked.indices) % _PACK == 0:
                asked.pack()
            return asked.indices[-1]

    def take(self) -> tuple[list[int], int]:
        """Fetches the answers and forgets the questions: a Finiteness by index, and how many host syncs that took,
        one for each stream that was asked on. What could not be fetched is unknown."""
        with self._lock:
            asked, self._asked = self._asked, {}
            answers = [int(Finiteness.UNKNOWN)] * self._questions
            self._questions = 0
        by_stream: dict[object, list[_Asked]] = {}
        for one in asked.values():
            by_stream.setdefault((one.device, one.stream), []).append(one)
        host_syncs = 0
        self._own_calls(1)
        try:
            for together in by_stream.values():
                host_syncs += together[0].device.type != "cpu"
                with contextlib.suppress(Exception), _straight():  # a device that is lost answers nothing
                    _fetch(together, answers)
        finally:
            self._own_calls(-1)
        return answers, host_syncs


def _fetch(together: list[_Asked], answers: list[int]) -> None:
    """All of one stream, with one host sync where its device is one that is waited for."""
    stream = together[0].stream
    with contextlib.nullcontext() if stream is None else torch.cuda.stream(stream):
        for one in together:
            one.pack()
        ranges = torch.cat([packed for one in together for packed in one.packed]).cpu().tolist()
    indices = [index for one in together for index in one.indices]
    for index, smallest, largest in zip(indices, ranges[::2], ranges[1::2], strict=True):
        answers[index] = int(_judged(smallest, largest))
