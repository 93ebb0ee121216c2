"""What the bytes of a snapshot are known by: a checksum, and whether every number among them is finite.

Neither needs memory that grows with the snapshot.
"""

from __future__ import annotations

import array
import math
import zlib
from typing import TYPE_CHECKING

import torch

from gradvane._governor.arena import BLOCK

if TYPE_CHECKING:
    from torch import Tensor

    from gradvane._governor.arena import Run

WHOLE = 1 << 26
"""bytes that torch reads at once, with all of its threads"""
ALONE = 1 << 15
"""bytes of which torch makes no work for other threads: for a thread next to the one that trains"""
_WIDENED = 1 << 20
"""elements of a type that has to be widened first"""


def checksum(memory: Tensor, at_once: int = WHOLE) -> int:
    """Of whole blocks: the sum of each block's 64-bit words, and a CRC over the sums, in their order. A changed bit
    or word always changes it; two changes in one block go unseen once in 2**64."""
    words = memory.view(torch.int64).view(-1, BLOCK // 8)
    code = 0
    rows = max(1, at_once // BLOCK)
    for begin in range(0, words.shape[0], rows):
        sums = words[begin : begin + rows].sum(1)
        code = zlib.crc32(array.array("q", sums.tolist()).tobytes(), code)
    return code


def first_nonfinite(memory: Tensor, runs: list[Run], at_once: int = WHOLE) -> int | None:
    """The byte at which a slice begins that has a NaN or an infinity; None: there is none."""
    for run in runs:
        if not (run.dtype.is_floating_point or run.dtype.is_complex):
            continue
        numbers = memory[run.begin : run.end].view(run.dtype)
        if run.dtype.is_complex:
            numbers = torch.view_as_real(numbers).flatten()
        at = _first_in(numbers, at_once)
        if at is not None:
            return run.begin + at * int(numbers.element_size())
    return None


def _first_in(numbers: Tensor, at_once: int) -> int | None:
    """The index of the first number that is not finite."""
    step = min(_WIDENED, at_once) if numbers.itemsize == 1 else max(1, at_once // numbers.itemsize)
    for begin in range(0, numbers.numel(), step):
        part = numbers[begin : begin + step]
        if not _is_finite(part):
            first = 0
            while part.numel() > 1:  # halves: no mask of its size
                half = part.numel() // 2
                if _is_finite(part[:half]):
                    first, part = first + half, part[half:]
                else:
                    part = part[:half]
            return begin + first
    return None


def _is_finite(numbers: Tensor) -> bool:
    """A sum is finite only if each number is; one that is not may be an overflow, and the extremes decide."""
    if numbers.itemsize == 1:
        numbers = numbers.to(torch.float32)
    kind = torch.float32 if numbers.itemsize == 2 else None
    if math.isfinite(numbers.sum(dtype=kind).item()):
        return True
    smallest, largest = torch.aminmax(numbers)  # NaN if there is one
    return math.isfinite(smallest.item()) and math.isfinite(largest.item())
