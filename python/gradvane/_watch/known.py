"""One optimizer that is watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import weakref

    from torch.optim import Optimizer


@dataclass
class Known:
    index: int
    """the native agent's"""
    optimizer: weakref.ref[Optimizer]
    steps: int = 0
