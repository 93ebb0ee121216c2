"""Which memory a tensor has that a copy on the host must have too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_PLAIN = {torch.Tensor, torch.nn.Parameter}


class Unsupported(Exception):
    """A tensor or an object that cannot be copied; the text is one sentence with its name."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the copy of one tensor lies on the host."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[int, ...]
    """a torch.Size, or equal to one"""
    stride: tuple[int, ...] | None
    """of a dense tensor whose elements are in another order than row-major; None: row-major"""

    @property
    def numel(self) -> int:
        numel = 1
        for size in self.shape:
            numel *= size
        return numel

    def is_of(self, tensor: Tensor) -> bool:
        return bool(tensor.dtype is self.dtype and tensor.shape == self.shape and tensor.device == self.device)

    def fits(self, tensor: Tensor) -> bool:
        """Whether a plain tensor can take the values in place."""
        if tensor.dtype != self.dtype or tensor.device != self.device or not has_memory(tensor):
            return False
        return bool(tensor.shape == self.shape or distinct(tensor).shape == self.shape)


def is_wrapper(tensor: Tensor) -> bool:
    """Whether its values lie in tensors inside it: DTensor, and what torchao and others make."""
    kind = type(tensor)
    return kind not in _PLAIN and hasattr(kind, "__tensor_flatten__")


@dataclass(frozen=True)
class Frame:
    """What is needed to build a wrapper around other tensors."""

    context: object
    parts: dict[str, object]
    """by attribute, what it names beside its tensors: from torch 2.15 on, a DTensor its mesh"""


def inner_tensors(tensor: Tensor) -> tuple[list[tuple[str, Tensor]], Frame]:
    """The tensors inside a wrapper by attribute, and all else of it."""
    names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    parts = {name: getattr(tensor, name) for name in names}
    tensors = [(name, part) for name, part in parts.items() if isinstance(part, torch.Tensor)]
    return tensors, Frame(context, {name: part for name, part in parts.items() if not isinstance(part, torch.Tensor)})


def distinct(tensor: Tensor) -> Tensor:
    """Without dimensions along which it is the same element again and again (expand())."""
    if 0 in tensor.stride():
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dimension] > 1:
                tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def layout_of(tensor: Tensor, name: str, known: Layout | None = None) -> Layout:
    """Of a plain tensor; `known` itself if that is it. Raises Unsupported."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else str(tensor.layout)
        raise Unsupported(f"{name} is {kind.removeprefix('torch.')}: only dense tensors can be copied")
    if tensor.device.type not in ("cpu", "cuda", "meta"):
        raise Unsupported(f"{name} is on {tensor.device}: only what lies on CPUs and CUDA devices can be copied")
    if tensor.is_meta or not torch._C._has_storage(tensor):
        raise Unsupported(f"{name} has no memory of its own (device {tensor.device})")
    if not has_memory(tensor):
        raise Unsupported(f"{name} has an empty storage: what offloads or shards it has freed it")
    if known is not None and known.stride is None and tensor.is_contiguous() and known.is_of(tensor):
        return known
    stride = None
    if not tensor.is_contiguous():  # which has each element once
        tensor = distinct(tensor)
        stride = None if tensor.is_contiguous() else _dense_stride(tensor)
    return Layout(tensor.dtype, tensor.device, tensor.shape, stride)


def has_memory(tensor: Tensor) -> bool:
    """Whether the storage of a plain tensor reaches as far as its elements do."""
    if tensor.numel() == 0:
        return True
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return bool(tensor.untyped_storage().nbytes() >= (tensor.storage_offset() + last + 1) * tensor.element_size())


def _dense_stride(tensor: Tensor) -> tuple[int, ...] | None:
    """Its strides if its elements fill their memory without gaps, as in channels_last."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return None
        expected *= size
    return tuple(tensor.stride())
