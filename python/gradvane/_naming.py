"""The names of parameters: as their module gives them, or as the script calls a tensor that no module owns."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, cast

import torch
from torch.utils.weak import TensorWeakRef

from gradvane import _finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.nn import Module

_WRAPPED = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")
"""What torch puts into the names of a module's own parameters when it wraps a part of it."""
_FREE_SECONDS = 0.5
_SHARE = 0.01


class Budget:
    """Time for looks at all objects of the process: half a second, and a hundredth of the time since then.

    A look takes tens of milliseconds, or seconds in a large program. Some scripts make a model and an optimizer
    for each of thousands of tasks.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._spent = 0.0

    def is_left(self) -> bool:
        return self._spent <= _FREE_SECONDS + _SHARE * (time.monotonic() - self._began)

    def __enter__(self) -> None:
        self._entered = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._spent += time.monotonic() - self._entered


class Names:
    """Calling it gives [(name, parameter)], a tied parameter under each name. Holds modules weakly.

    One root module gives its names as they are. Several get a label in front: what the script calls them,
    else their class.
    """

    def __init__(self) -> None:
        self._roots: list[weakref.ref[Module]] = []
        self._loose: dict[int, TensorWeakRef] = {}
        self._of_roots: set[int] = set()
        self.budget = Budget()

    def add(self, root: Module) -> None:
        root = _finding.unwrapped(root)
        self._roots = [reference for reference in self._roots if reference() is not None]
        if all(reference() is not root for reference in self._roots):
            # What it had may be gone with it, and others get those ids.
            of_roots = self._of_roots
            self._roots.append(weakref.ref(root, lambda _: of_roots.clear()))
        # By id: torch refuses to swap a tensor that anyone has a weak reference to, as Module.to() may.
        self._of_roots.update(id(param) for param in root.parameters())

    def know(self, params: Iterable[Tensor]) -> None:
        """Looks for who owns those of `params` that have no name yet: among all modules while the budget lasts."""
        unknown = [param for param in params if not self._has_seen(param)]
        if not unknown:
            return
        with self.budget:
            roots = _finding.roots_owning(unknown, among_young=not self.budget.is_left())
        for root in roots:
            self.add(root)
        loose = {key: reference for key, reference in self._loose.items() if reference() is not None}
        loose.update((id(param), TensorWeakRef(param)) for param in unknown if not self._has_seen(param))
        self._loose = loose  # whole: other threads go through it

    def _has_seen(self, param: Tensor) -> bool:
        loose = self._loose.get(id(param))
        return id(param) in self._of_roots or (loose is not None and loose() is param)

    def roots(self) -> list[Module]:
        return [root for reference in self._roots if (root := reference()) is not None]

    def unnamed(self) -> int:
        """Tensors that no module owns and the script has no global name for."""
        return sum(1 for name, _ in self._loose_names() if name.startswith("tensor"))

    def __call__(self) -> list[tuple[str, Tensor]]:
        roots = self.roots()
        labels = _labels(roots)
        named = [
            (label + _own_name(name), param)
            for label, root in zip(labels, roots)
            for name, param in root.named_parameters(remove_duplicate=False)
        ]
        return named + self._loose_names()

    def of_modules(self) -> dict[int, str]:
        """id -> name of each module; a shared one's first. The root's is empty where there is only one."""
        named: dict[int, str] = {}
        roots = self.roots()
        for label, root in zip(_labels(roots), roots):
            for name, module in root.named_modules():
                own = label + _own_name(name + ".") if name else label
                named.setdefault(id(_finding.unwrapped(module)), own.removesuffix("."))
        return named

    def _loose_names(self) -> list[tuple[str, Tensor]]:
        tensors = [tensor for reference in self._loose.values() if (tensor := reference()) is not None]
        if not tensors:
            return []
        called = _called_by_script()
        return [(called.get(id(tensor), f"tensor{i}"), tensor) for i, tensor in enumerate(tensors)]


def _own_name(name: str) -> str:
    for part in _WRAPPED:
        name = name.replace(part, "")
    return name


def _labels(roots: list[Module]) -> list[str]:
    if len(roots) < 2:
        return [""] * len(roots)
    called: dict[int, str] = {}
    for name, thing in _finding.script_things():
        if issubclass(type(thing), torch.nn.Module):
            called.setdefault(id(_finding.unwrapped(cast("Module", thing))), name)
    labels: list[str] = []
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for root in roots:
        label = name = called.get(id(root), type(root).__name__)
        while label in taken:
            counts[name] = counts.get(name, 1) + 1
            label = f"{name}_{counts[name]}"
        taken.add(label)
        labels.append(label + ".")
    return labels


def _called_by_script() -> dict[int, str]:
    """Tensors in the script's globals, and in lists and dictionaries there, by id."""
    called: dict[int, str] = {}
    for name, thing in _finding.script_things():
        if issubclass(type(thing), torch.Tensor):
            called.setdefault(id(thing), name)
    return called
