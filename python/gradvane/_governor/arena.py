"""One block of host memory that holds copies of many tensors, those of one type side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from gradvane._governor import host_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from gradvane._governor.tensors import Layout

_ALIGNED = 64
BLOCK = 64 << 10
"""bytes; arenas are whole blocks"""


@dataclass(frozen=True)
class Run:
    """Bytes of one type; what lies between two tensors is zero."""

    dtype: torch.dtype
    begin: int
    end: int


class Plan:
    """Where each tensor lies in an arena. Two snapshots of an unchanged training share one."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.layouts = list(layouts)
        self.offsets = [0] * len(layouts)
        self.runs: list[Run] = []
        self.is_on_device = any(layout.device.type != "cpu" for layout in layouts)
        order = sorted(range(len(layouts)), key=lambda i: (str(layouts[i].dtype), i))
        at = 0
        for i in order:
            layout = layouts[i]
            begin, at = at, at + _rounded(layout.numel * layout.dtype.itemsize, _ALIGNED)
            self.offsets[i] = begin
            if self.runs and self.runs[-1].dtype == layout.dtype:
                self.runs[-1] = Run(layout.dtype, self.runs[-1].begin, at)
            else:
                self.runs.append(Run(layout.dtype, begin, at))
        self.size = max(BLOCK, _rounded(at, BLOCK))

    def runs_without(self, slots: set[int]) -> list[Run]:
        """The bytes of all other tensors."""
        runs = self.runs
        for slot in slots:
            layout = self.layouts[slot]
            begin = self.offsets[slot]
            end = begin + layout.numel * layout.dtype.itemsize
            runs = [part for run in runs for part in _cut(run, begin, end)]
        return runs

    def slot_at(self, byte: int) -> int:
        """The tensor that a byte of the arena belongs to."""
        return max((i for i, offset in enumerate(self.offsets) if offset <= byte and self.layouts[i].numel > 0),
                   key=lambda i: self.offsets[i])


class Arena:
    """Memory that stays the same while what it holds fits."""

    def __init__(self, plan: Plan, spare: float = 0.0) -> None:
        """`spare`: share of memory beyond the plan, for a state that grows. Raises RuntimeError."""
        size = _rounded(int(plan.size * (1 + spare)), BLOCK)
        self.is_pinned = plan.is_on_device
        self._memory = host_memory.allocate(size, self.is_pinned)
        self._plan: Plan | None = None
        self._views: list[Tensor] = []

    @property
    def size(self) -> int:
        return int(self._memory.numel())

    @property
    def address(self) -> int:
        return int(self._memory.data_ptr())

    def holds(self, plan: Plan) -> bool:
        return plan.size <= self.size and (self.is_pinned or not plan.is_on_device)

    def bytes_of(self, plan: Plan) -> Tensor:
        return self._memory[: plan.size]

    def views(self, plan: Plan) -> list[Tensor]:
        """A tensor for each layout of the plan; they are made once per plan."""
        if self._plan is not plan:
            if self._plan is not None:
                self._memory.zero_()  # what is between the tensors
            typed = {run.dtype: self._memory.view(run.dtype) for run in plan.runs}
            self._views = [
                _view(typed[layout.dtype], layout, offset) for layout, offset in zip(plan.layouts, plan.offsets)
            ]
            self._plan = plan
        return self._views


def _view(typed: Tensor, layout: Layout, offset: int) -> Tensor:
    stride = layout.stride
    if stride is None:
        steps = [1] * len(layout.shape)
        for i in range(len(steps) - 2, -1, -1):
            steps[i] = steps[i + 1] * max(1, layout.shape[i + 1])
        stride = tuple(steps)
    return typed.as_strided(layout.shape, stride, offset // layout.dtype.itemsize)


def _cut(run: Run, begin: int, end: int) -> list[Run]:
    """What is left of the run without the bytes from `begin` to `end`."""
    if end <= run.begin or begin >= run.end:
        return [run]
    parts = [Run(run.dtype, run.begin, begin), Run(run.dtype, end, run.end)]
    return [part for part in parts if part.begin < part.end]


def _rounded(size: int, to: int) -> int:
    return (size + to - 1) // to * to
