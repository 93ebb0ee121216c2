"""What GradScalers have done to the losses and gradients of a step."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import TensorWeakRef

from gradvane._torch_ops import undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.amp import GradScaler
    from torch.optim import Optimizer

    ScalerRef = weakref.ref[GradScaler]

_MOST_KEPT = 64
"""scaled losses whose backward pass has not come yet"""
_MOST_NODES = 64
"""of a loss's graph that are looked at: what is made of scaled losses, their mean for example, is near its end"""
_SMALL = 64
"""bytes: a loss may be a view of something large, which would be kept with it"""


@dataclass
class _Scaled:
    """What a scaler made of a loss."""

    scaler: ScalerRef
    result: TensorWeakRef
    node: tuple[str, int] | None
    """of autograd, that made the result: its kind, and its number in the thread"""
    loss: Tensor | None
    was_root: bool = False
    """a backward pass has begun at it, or at what was made of it"""


class _InThread(threading.local):
    def __init__(self) -> None:
        self.scaled: list[_Scaled] = []
        self.scalers_since_step: set[ScalerRef | None] = set()
        """those that scaled what the backward passes since the last step began at; None: nothing did"""
        self.scaler_step: tuple[GradScaler, Optimizer] | None = None
        """whose step() is under way, and with which optimizer"""


class Scaling:
    """Follows each scaler: a program may have several, and models without one. A scaler that is switched off is none."""

    def __init__(self) -> None:
        self._scalers: dict[int, ScalerRef] = {}
        self._by_optimizer: dict[int, ScalerRef | None] = {}
        """of watched optimizers, by their ids: whose step() called the last one; None: the program itself"""
        self._here = _InThread()

    # Losses ---------------------------------------------------------------------------------------

    def scaled(self, scaler: GradScaler, losses: object, results: object) -> None:
        """The scaler made `results` of `losses`: a tensor, or a list or a tuple of them. What it makes of an iterator
        is for the program alone to go through."""
        known = {key: reference for key, reference in list(self._scalers.items()) if reference() is not None}
        known[id(scaler)] = reference = weakref.ref(scaler)
        self._scalers = known
        waiting = [one for one in self._here.scaled if not one.was_root or one.result() is not None]
        with undisturbed():
            for loss, result in _pairs(losses, results):
                kept = loss.detach() if loss.numel() == 1 and not _is_of_something_large(loss) else None
                waiting.append(_Scaled(reference, TensorWeakRef(result), _name_of(result.grad_fn), kept))
        self._here.scaled = waiting[-_MOST_KEPT:]

    def pass_ended(self, roots: list[Tensor]) -> list[Tensor]:
        """A backward pass began at these: the losses that they were scaled from. Of a root of several numbers, itself."""
        if not self._here.scaled:
            self._here.scalers_since_step.add(None)
            return roots
        with undisturbed():
            return [self._loss_of(root) for root in roots]

    def _loss_of(self, root: Tensor) -> Tensor:
        found = self._scaled_in(root)
        self._here.scalers_since_step.add(found[0].scaler if found else None)
        if not found or root.numel() != 1:
            return root
        scaler, loss = found[0].scaler, found[0].loss
        is_itself = found[0].result() is root and found[0].node == _name_of(root.grad_fn)
        for one in found:
            one.was_root, one.loss = True, None
        return loss if is_itself and loss is not None else _divided(root, scaler)

    def _scaled_in(self, root: Tensor) -> list[_Scaled]:
        """The root itself, or what it was made of."""
        for one in self._here.scaled:
            if one.result() is root:
                return [one]
        waiting = {one.node: one for one in self._here.scaled if one.node is not None and not one.was_root}
        return [waiting[name] for name in _nodes_of(root) if name in waiting] if waiting else []

    # Gradients ------------------------------------------------------------------------------------

    def step_begins(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """The scaler's step(), which calls the optimizer's or leaves it out."""
        self._here.scaler_step = scaler, optimizer
        self._here.scalers_since_step.clear()

    def step_ended(self) -> None:
        self._here.scaler_step = None

    def at_step(self, optimizer: Optimizer) -> tuple[Tensor | None, bool]:
        """As state_of(), where the step() of a watched optimizer begins: without a scaler's around it, it takes the
        gradients as they are."""
        under_way = self._here.scaler_step  # with the optimizer, or with what it is a part of
        self._by_optimizer[id(optimizer)] = None if under_way is None else weakref.ref(under_way[0])
        if under_way is not None:
            return _state(*under_way)
        self._here.scalers_since_step.clear()
        return self.state_of(optimizer)

    def state_of(self, optimizer: Optimizer | None) -> tuple[Tensor | None, bool]:
        """What the optimizer's scaler multiplies by, and whether its gradients still are multiplied. A loop without an
        optimizer has none."""
        if optimizer is None:
            return None, False
        return _state(self._scaler_of(optimizer), optimizer)

    def _scaler_of(self, optimizer: Optimizer) -> GradScaler | None:
        under_way = self._here.scaler_step
        if under_way is not None and under_way[1] is optimizer:
            return under_way[0]
        for reference in list(self._scalers.values()):
            if (scaler := reference()) is not None and _stage(scaler, optimizer) is not None:
                return scaler
        last = self._by_optimizer.get(id(optimizer))
        if last is None and id(optimizer) in self._by_optimizer:  # a loop that divides by the scale itself is one of these
            return None
        since_step = list(self._here.scalers_since_step)
        chosen = since_step[0] if len(since_step) == 1 else last
        return None if chosen is None else chosen()

    def forget(self, key: int) -> None:
        """The optimizer with this id is gone."""
        self._by_optimizer.pop(key, None)


def _is_of_something_large(loss: Tensor) -> bool:
    return type(loss) is torch.Tensor and loss.untyped_storage().nbytes() > _SMALL


def _divided(root: Tensor, scaler: ScalerRef) -> Tensor:
    scale = getattr(scaler(), "_scale", None)
    is_usable = isinstance(scale, torch.Tensor) and scale.device == root.device
    return root.detach() / scale if is_usable else root


def _state(scaler: GradScaler | None, optimizer: Optimizer) -> tuple[Tensor | None, bool]:
    if scaler is None or not getattr(scaler, "_enabled", False):
        return None, False
    return getattr(scaler, "_scale", None), _stage(scaler, optimizer) in (None, "READY")


def _stage(scaler: GradScaler, optimizer: Optimizer) -> str | None:
    """How far the scaler is with the gradients; None before it has begun with them."""
    states = getattr(scaler, "_per_optimizer_states", {})
    stage = states[id(optimizer)].get("stage") if id(optimizer) in states else None
    return getattr(stage, "name", None)


def _pairs(losses: object, results: object) -> Iterator[tuple[Tensor, Tensor]]:
    if isinstance(losses, torch.Tensor) and isinstance(results, torch.Tensor):
        yield losses, results
    elif isinstance(losses, (list, tuple)) and isinstance(results, (list, tuple)):
        for loss, result in zip(losses, results):
            yield from _pairs(loss, result)


def _name_of(node: Any) -> tuple[str, int] | None:
    """Not by its name(), which a program's own autograd.Function may have something else for."""
    return None if node is None else (type(node).__name__, node._sequence_nr())


def _nodes_of(root: Tensor) -> Iterator[tuple[str, int] | None]:
    """Those that made it, the last ones first."""
    nodes = [root.grad_fn]
    seen = set()
    for _ in range(_MOST_NODES):
        if not nodes:
            return
        node = nodes.pop(0)
        if node is None or (name := _name_of(node)) in seen:
            continue
        seen.add(name)
        yield name
        nodes += [function for function, _ in node.next_functions]
