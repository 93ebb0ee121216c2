"""What torch's own operators do for the native part, which is built without torch's headers.

Nothing here becomes part of an autograd graph, is seen by a program's overrides of torch functions, or waits for
a device. Called by the native part, with tensors and lists of them.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

Function = TypeVar("Function", bound="Callable[..., Any]")
_from_handle = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Neither a program's overrides nor its dispatch modes see what runs inside, and no graph is recorded."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
        yield


def _unseen(function: Function) -> Function:
    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return function(*arguments)

    return wrapped  # type: ignore[return-value]


@_unseen
def has_storage(tensor: Tensor) -> bool:
    return bool(torch._C._has_storage(tensor))


@_unseen
def is_neg(tensor: Tensor) -> bool:
    return bool(tensor.is_neg())


@_unseen
def sizes(tensor: Tensor) -> tuple[int, ...]:
    if torch.nn.parameter.is_lazy(tensor):
        return (0,)  # it gets its shape, and its memory, in the module's first forward pass
    return tuple(int(size) for size in tensor.shape)


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def from_handle(handle: object) -> Tensor:
    return _from_handle(handle)


@_unseen
def dense_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous()


@_unseen
def scalar_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(()).to(torch.float64, copy=True)


@_unseen
def scalar_sum(a: Tensor, b: Tensor) -> Tensor:
    return a + b


@_unseen
def sparse_parts(tensor: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Values, indices, and whether nothing was copied. Sums duplicate indices, as an optimizer does."""
    is_coalesced = tensor.is_coalesced()
    coalesced = tensor if is_coalesced else tensor.coalesce()
    stored = coalesced._values()
    values = stored.contiguous()
    return values, coalesced._indices().contiguous(), is_coalesced and values.data_ptr() == stored.data_ptr()


def _groups(tensors: list[Tensor]) -> list[list[Tensor]]:
    """Dense tensors of one device and type: torch's foreach operators take such a list in few launches."""
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    return list(groups.values())


@_unseen
def scale_gradients(gradients: list[Tensor], coefficient: float) -> None:
    """Multiplies each in place. 1 touches nothing. For CPUs."""
    if coefficient == 1:
        return
    dense = [gradient for gradient in gradients if not gradient.is_sparse]
    for gradient in gradients:
        if gradient.is_sparse:
            gradient.mul_(coefficient)
    if dense:
        torch._foreach_mul_(dense, coefficient)


def _norms(group: list[Tensor]) -> Tensor:
    """One norm for each tensor of the group, as one vector."""
    first = group[0]
    if first.is_complex():
        return torch.stack(torch._foreach_norm(group)).to(torch.float64)
    # 16-bit norms would be rounded to 16 bits. On CPUs sums in fp64 cost little.
    in_double = first.device.type == "cpu" or first.dtype == torch.float64
    kind = torch.float64 if in_double else torch.float32
    return torch.stack(torch._foreach_norm(group, 2, dtype=kind)).to(torch.float64)


@_unseen
def norm_with_torch(gradients: list[Tensor]) -> Tensor:
    """The total L2 norm, 0-dim fp64 on the first one's device, without a host sync."""
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    dense = [gradient.coalesce()._values() if gradient.is_sparse else gradient for gradient in gradients]
    device = gradients[0].device
    norms = [torch.linalg.vector_norm(_norms(group)).to(device, non_blocking=True) for group in _groups(dense)]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


@_unseen
def clip_to_norm(gradients: list[Tensor], norm: Tensor, max_norm: float) -> None:
    """Scales to a largest norm, given the norm. The coefficient is worked out in fp64, and rounded to the type of
    the gradients that it multiplies."""
    coefficient = norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0)

    def for_one(gradient: Tensor) -> Tensor:
        return coefficient.to(gradient.device, gradient.dtype, non_blocking=True)

    for gradient in gradients:
        if gradient.is_sparse:
            gradient.mul_(for_one(gradient))
    for group in _groups([gradient for gradient in gradients if not gradient.is_sparse]):
        torch._foreach_mul_(group, for_one(group[0]))


def note_written(gradients: list[Tensor]) -> None:
    """Counts a write to each, as torch's own operators do."""
    torch.autograd.graph.increment_version(gradients)


@_unseen
def in_norm_type(norm: Tensor, parameters: list[Tensor]) -> Tensor:
    """The norm in the type that torch.nn.utils.clip_grad_norm_ returns: the one that all gradients promote to."""
    kinds = {parameter.grad.dtype.to_real() for parameter in parameters if parameter.grad is not None}
    if not kinds:
        return norm.to(torch.get_default_dtype())
    return norm.to(functools.reduce(torch.promote_types, kinds))


@_unseen
def scalar_tensor(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def device_memory() -> tuple[int, ...] | None:
    """Of all CUDA devices together: bytes held by tensors, bytes held by torch's allocator, the most that tensors held
    on each since its peak was reset, allocations that were tried again, allocations that failed, and the bytes that the
    allocator may take of the devices that it has used. None if torch has not used a device. Resets nothing."""
    if not torch.cuda.is_initialized():
        return None
    found = (0,) * 6
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats_as_nested_dict(device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        limit = 0
        if reserved["peak"] > 0:
            limit = int(torch.cuda.get_device_properties(device).total_memory
                        * torch.cuda.get_per_process_memory_fraction(device))
        now = (allocated["current"], reserved["current"], allocated["peak"], stats["num_alloc_retries"],
               stats["num_ooms"], limit)
        found = tuple(total + one for total, one in zip(found, now))
    return found
