"""What a training's state is: models, optimizers, scalers, schedulers, random numbers, and what the user adds."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import TensorWeakRef

from gradvane._governor import attachments, random_states
from gradvane._governor.trees import Capture, Slot, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from gradvane._governor.attachments import ScalerPart, SchedulerPart, UserPart
    from gradvane._governor.random_states import RandomStates
    from gradvane._governor.tensors import Layout
    from gradvane._governor.trees import Node

_LOOK_AGAIN_AFTER = 30.0
"""seconds, for scalers and schedulers that were made since"""


@dataclass(frozen=True)
class ModelPart:
    model: weakref.ref[Module]
    kind: str
    parameters: dict[str, Slot | Wrapper]
    buffers: dict[str, Slot | Wrapper]
    caches: frozenset[str]
    """buffers that are not persistent"""


@dataclass(frozen=True)
class OptimizerPart:
    optimizer: weakref.ref[Optimizer]
    kind: str
    parameters: list[list[tuple[TensorWeakRef, Slot | Wrapper]]]
    """of each group"""
    groups: list[Node]
    """without their parameters"""
    state: list[tuple[Any, Node]]
    """by a weak reference to the parameter, or by whatever else the optimizer keeps it under"""


@dataclass
class Captured:
    """The state at one moment, except for the values of its tensors: those lie in an arena."""

    layouts: list[Layout]
    names: list[str]
    models: list[ModelPart]
    optimizers: list[OptimizerPart]
    scalers: list[ScalerPart]
    schedulers: list[SchedulerPart]
    user: list[UserPart]
    random: RandomStates
    at_once: set[int] = field(default_factory=set)
    """slots that a forward pass may write: buffers, and the user's own"""


class TrainingState:
    """Enumerates what lives, again each time: modules and optimizers may have changed."""

    def __init__(self, roots: Callable[[], list[Module]], optimizers: Callable[[], list[Optimizer]]) -> None:
        self._roots = roots
        self.optimizers = optimizers
        self._found = attachments.Found()
        self._looked_at: float | None = None
        self._known: set[int] = set()
        self._looks = 0
        self._layouts: list[Layout] = []
        self._user: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {}
        self._more: list[weakref.ref[Module]] = []

    def add(self, name: str, save: Any, load: Callable[[Any], object] | None) -> None:
        """As Agent.snapshot_state(). Raises TypeError."""
        if load is None and isinstance(save, torch.nn.Module):
            self._more.append(weakref.ref(save))
            return
        if load is None and hasattr(save, "state_dict") and hasattr(save, "load_state_dict"):
            save, load = save.state_dict, save.load_state_dict
        if not callable(save) or not callable(load):
            raise TypeError(f"snapshot_state({name!r}): pass a function that returns the state and one that loads it, "
                            "or an object with state_dict() and load_state_dict()")
        self._user[name] = (save, load)

    def roots(self) -> list[Module]:
        roots = list(self._roots())
        more = [module for reference in self._more if (module := reference()) is not None]
        return roots + [module for module in more if all(module is not root for root in roots)]

    def capture(self, now: float) -> tuple[Captured, list[Tensor]]:
        """Takes down all but the tensors' values, and returns the tensors that have them, in the slots' order. `now`:
        seconds. Raises Unsupported."""
        optimizers = self.optimizers()
        self._look(optimizers, now)
        capture = Capture(self._layouts)
        models = [_model_part(root, i, capture) for i, root in enumerate(self.roots())]
        buffers = {i for part in models for node in part.buffers.values() for i in slots_in(node)}
        parts = [_optimizer_part(optimizer, i, capture) for i, optimizer in enumerate(optimizers)]
        in_training = len(capture.tensors)
        scalers, schedulers = self._found.take(capture)
        user = [attachments.take_user(name, save, load, capture) for name, (save, load) in self._user.items()]
        at_once = buffers | set(range(in_training, len(capture.tensors)))
        self._layouts = capture.layouts
        devices = {layout.device for layout in capture.layouts}
        return Captured(capture.layouts, capture.names, models, parts, scalers, schedulers, user,
                        random_states.taken(devices), at_once), capture.tensors

    def _look(self, optimizers: list[Optimizer], now: float) -> None:
        """At the first two snapshots, when an optimizer comes, and every half minute."""
        known = {id(optimizer) for optimizer in optimizers}
        is_due = self._looked_at is None or self._looks < 2 or now - self._looked_at >= _LOOK_AGAIN_AFTER
        if is_due or known != self._known:
            self._found.look(optimizers)
            self._looked_at, self._known, self._looks = now, known, self._looks + 1


def named_tensors(root: Module) -> Iterator[tuple[str, Tensor, bool, bool]]:
    """Name, tensor, whether it is a buffer, and whether that is not persistent; shared ones under each name."""
    for prefix, module in root.named_modules():
        start = f"{prefix}." if prefix else ""
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield start + name, parameter, False, False
        for name, buffer in module._buffers.items():
            if buffer is not None:
                yield start + name, buffer, True, name in module._non_persistent_buffers_set


def slots_in(node: Slot | Wrapper) -> list[int]:
    if isinstance(node, Slot):
        return [node]
    return [index for part in node.inner.values() for index in slots_in(part)]


def _model_part(root: Module, index: int, capture: Capture) -> ModelPart:
    part = ModelPart(weakref.ref(root), type(root).__name__, {}, {}, frozenset())
    caches = set()
    for name, tensor, is_buffer, is_cache in named_tensors(root):
        node = capture.tensor(tensor, f"{'buffer' if is_buffer else 'parameter'} {name}")
        (part.buffers if is_buffer else part.parameters)[name] = node
        if is_cache:
            caches.add(name)
    return ModelPart(part.model, part.kind, part.parameters, part.buffers, frozenset(caches))


def _optimizer_part(optimizer: Optimizer, index: int, capture: Capture) -> OptimizerPart:
    kind = type(optimizer).__name__
    parameters = [
        [(TensorWeakRef(p), capture.tensor(p, f"parameter {i} in group {g} of {kind}")) for i, p in
         enumerate(group["params"])]
        for g, group in enumerate(optimizer.param_groups)
    ]
    groups = [
        capture.tree({key: value for key, value in group.items() if key != "params"}, f"group {g} of {kind}")
        for g, group in enumerate(optimizer.param_groups)
    ]
    state = []
    for i, (key, value) in enumerate(optimizer.state.items()):
        held = TensorWeakRef(key) if isinstance(key, torch.Tensor) else key
        state.append((held, capture.tree(value, f"state of {kind}, entry {i}")))
    return OptimizerPart(weakref.ref(optimizer), kind, parameters, groups, state)
