"""What a GradScaler has done to the losses and gradients of a step."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch.utils.weak import TensorWeakRef

if TYPE_CHECKING:
    from torch import Tensor
    from torch.amp import GradScaler
    from torch.optim import Optimizer

_MOST_KEPT = 64
"""scaled losses whose backward pass has not come yet"""


class Scaling:
    """Follows the scaler that scaled last. A scaler that is switched off is none."""

    def __init__(self) -> None:
        self._scaler: weakref.ref[GradScaler] | None = None
        self._losses: list[tuple[TensorWeakRef, Tensor]] = []

    def scaled(self, scaler: GradScaler, loss: object, result: object) -> None:
        """The scaler made `result` of `loss`."""
        import torch

        self._scaler = weakref.ref(scaler)
        if isinstance(loss, torch.Tensor) and isinstance(result, torch.Tensor):
            del self._losses[:-_MOST_KEPT]
            self._losses.append((TensorWeakRef(result), loss.detach()))

    def loss_of(self, root: Tensor) -> Tensor:
        """The loss that a backward pass from `root` goes back to."""
        for i, (result, loss) in enumerate(self._losses):
            if result() is root:
                del self._losses[: i + 1]
                return loss
        return root

    def state_of(self, optimizer: Optimizer | None) -> tuple[Tensor | None, bool]:
        """What the scaler multiplies by, and whether the optimizer's gradients still are multiplied. A loop without an
        optimizer has none."""
        scaler = self._scaler() if self._scaler is not None else None
        if optimizer is None or scaler is None or not getattr(scaler, "_enabled", False):
            return None, False
        scale = getattr(scaler, "_scale", None)
        states = getattr(scaler, "_per_optimizer_states", {})
        stage = states[id(optimizer)]["stage"] if id(optimizer) in states else None
        return scale, getattr(stage, "name", "READY") == "READY"
