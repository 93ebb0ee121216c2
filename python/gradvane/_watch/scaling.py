"""What a GradScaler has done to the losses and gradients of a step."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch
from torch.utils.weak import TensorWeakRef

from gradvane._torch_ops import undisturbed

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
        self._losses: list[tuple[TensorWeakRef, Tensor | None]] = []
        """what was scaled, and the loss that it was made of, if that is one number: others may be large"""

    def scaled(self, scaler: GradScaler, loss: object, result: object) -> None:
        """The scaler made `result` of `loss`."""
        self._scaler = weakref.ref(scaler)
        if isinstance(loss, torch.Tensor) and isinstance(result, torch.Tensor):
            with undisturbed():
                kept = loss.detach() if loss.numel() == 1 else None
            del self._losses[:-_MOST_KEPT]
            self._losses.append((TensorWeakRef(result), kept))

    def loss_of(self, root: Tensor) -> Tensor:
        """The loss that a backward pass from `root` goes back to. What is made of scaled losses, their mean or sum for
        example, is multiplied as they are."""
        for i, (result, loss) in enumerate(self._losses):
            if loss is not None and result() is root:
                del self._losses[: i + 1]
                return loss
        if not self._losses:
            return root
        self._losses.clear()
        scaler = self._scaler() if self._scaler is not None else None
        scale = getattr(scaler, "_scale", None)
        if not isinstance(scale, torch.Tensor) or scale.device != root.device:
            return root
        with undisturbed():
            return root.detach() / scale

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
