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

_MOST_KEPT = 64
"""scaled losses whose backward pass has not come yet"""
_MOST_NODES = 64
"""of a loss's graph that are looked at: what is made of scaled losses, their mean for example, is near its end"""


@dataclass
class _Scaled:
    """What a scaler made of a loss."""

    scaler: weakref.ref[GradScaler]
    result: TensorWeakRef
    node: tuple[str, int] | None
    """of autograd, that made the result: its name, and its number in the thread"""
    loss: Tensor | None
    """if that is one number: others may be large"""
    was_root: bool = False
    """a backward pass has begun at it, or at what was made of it"""


class _InThread(threading.local):
    def __init__(self) -> None:
        self.of_roots: set[weakref.ref[GradScaler] | None] = set()
        """what scaled the losses of the backward passes since the last step: None, if nothing did"""
        self.of_step: tuple[GradScaler, Optimizer] | None = None
        """whose step() is under way, and with which optimizer"""


class Scaling:
    """Follows each scaler: a program may have several, and models without one. A scaler that is switched off is none."""

    def __init__(self) -> None:
        self._scaled: list[_Scaled] = []
        self._scalers: dict[int, weakref.ref[GradScaler]] = {}
        self._of: dict[int, weakref.ref[GradScaler] | None] = {}
        """by the id of an optimizer: whose step() called its last one; None: the program itself"""
        self._here = _InThread()

    # Losses ---------------------------------------------------------------------------------------

    def scaled(self, scaler: GradScaler, losses: object, results: object) -> None:
        """The scaler made `results` of `losses`: a tensor, or a list or a tuple of them. What it makes of an iterator
        is for the program alone to go through."""
        self._scalers = {key: of for key, of in self._scalers.items() if of() is not None}
        self._scalers[id(scaler)] = of = weakref.ref(scaler)
        self._scaled = [one for one in self._scaled if not one.was_root or one.result() is not None][-_MOST_KEPT + 1 :]
        with undisturbed():
            for loss, result in _pairs(losses, results):
                kept = loss.detach() if loss.numel() == 1 else None
                self._scaled.append(_Scaled(of, TensorWeakRef(result), _name_of(result.grad_fn), kept))

    def pass_ended(self, roots: list[Tensor]) -> list[Tensor]:
        """A backward pass began at these: the losses that they were scaled from."""
        if not self._scaled:
            self._here.of_roots.add(None)
            return roots
        losses = []
        with undisturbed():
            for root in roots:
                loss, of = self._loss_of(root)
                losses.append(loss)
                self._here.of_roots.add(of)
        return losses

    def _loss_of(self, root: Tensor) -> tuple[Tensor, weakref.ref[GradScaler] | None]:
        for one in self._scaled:
            if one.result() is root:
                one.was_root = True
                return (_divided(root, one.scaler) if one.loss is None else one.loss), one.scaler
        waiting = {one.node: one for one in self._scaled if one.node is not None and not one.was_root}
        made_of = [waiting[name] for name in _nodes_of(root) if name in waiting] if waiting else []
        if not made_of:
            return root, None
        for one in made_of:
            one.was_root = True
        return _divided(root, made_of[0].scaler), made_of[0].scaler

    # Gradients ------------------------------------------------------------------------------------

    def step_begins(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """The scaler's step(), which calls the optimizer's or leaves it out."""
        self._here.of_step = scaler, optimizer
        self._here.of_roots.clear()
        self._of[id(optimizer)] = weakref.ref(scaler)

    def step_ended(self) -> None:
        self._here.of_step = None

    def at_step(self, optimizer: Optimizer) -> tuple[Tensor | None, bool]:
        """As state_of(), where the optimizer's step() begins: without a scaler's around it, it takes the gradients as
        they are."""
        if self._here.of_step is not None:  # of the optimizer, or of what it is a part of
            return _state(*self._here.of_step)
        self._of[id(optimizer)] = None
        self._here.of_roots.clear()
        return self.state_of(optimizer)

    def state_of(self, optimizer: Optimizer | None) -> tuple[Tensor | None, bool]:
        """What the optimizer's scaler multiplies by, and whether its gradients still are multiplied. A loop without an
        optimizer has none."""
        if optimizer is None:
            return None, False
        return _state(self._scaler_of(optimizer), optimizer)

    def _scaler_of(self, optimizer: Optimizer) -> GradScaler | None:
        if self._here.of_step is not None and self._here.of_step[1] is optimizer:
            return self._here.of_step[0]
        for of in list(self._scalers.values()):
            if (scaler := of()) is not None and _stage(scaler, optimizer) is not None:
                return scaler
        found = list(self._here.of_roots)
        last = found[0] if len(found) == 1 else self._of.get(id(optimizer))
        return None if last is None else last()

    def forget(self, key: int) -> None:
        """The optimizer with this id is gone."""
        self._of.pop(key, None)


def _divided(root: Tensor, of: weakref.ref[GradScaler]) -> Tensor:
    scale = getattr(of(), "_scale", None)
    is_usable = isinstance(scale, torch.Tensor) and scale.device == root.device
    return root.detach() / scale if is_usable else root


def _state(scaler: GradScaler | None, optimizer: Optimizer) -> tuple[Tensor | None, bool]:
    if scaler is None or not getattr(scaler, "_enabled", False):
        return None, False
    return getattr(scaler, "_scale", None), _stage(scaler, optimizer) in (None, "READY")


def _pairs(losses: object, results: object) -> Iterator[tuple[Tensor, Tensor]]:
    if isinstance(losses, torch.Tensor) and isinstance(results, torch.Tensor):
        yield losses, results
    elif isinstance(losses, (list, tuple)) and isinstance(results, (list, tuple)):
        for loss, result in zip(losses, results):
            yield from _pairs(loss, result)


def _name_of(node: Any) -> tuple[str, int] | None:
    return None if node is None else (node.name(), node._sequence_nr())


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


def _stage(scaler: GradScaler, optimizer: Optimizer) -> str | None:
    """How far the scaler is with the gradients; None before it has begun with them."""
    states = getattr(scaler, "_per_optimizer_states", {})
    stage = states[id(optimizer)].get("stage") if id(optimizer) in states else None
    return getattr(stage, "name", None)
