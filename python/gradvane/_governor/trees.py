"""Nested values: tensors in dictionaries and lists, next to numbers and whatever else optimizers and schedulers keep.

A tree is taken down as a recipe whose tensors are slots of an arena. planned() makes the value again, of the tensors
and containers that are there now as far as they fit, and changes none of them until its writes run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from gradvane._governor.tensors import Frame, Layout, Unsupported, inner_tensors, is_wrapper, layout_of

if TYPE_CHECKING:
    from torch import Tensor

_ATOMS = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size)
_DEEPEST = 40


class Slot(int):
    """A plain tensor, by its place in the list of layouts. The garbage collector does not follow numbers: a snapshot of
    many small tensors would otherwise make it go through all objects of the program."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A tensor whose values lie in others."""

    kind: Any
    frame: Frame
    shape: torch.Size
    stride: tuple[int, ...]
    inner: dict[str, Slot | Wrapper]


@dataclass(frozen=True, slots=True)
class Table:
    kind: type
    items: list[tuple[Any, Node]]


@dataclass(frozen=True, slots=True)
class Row:
    kind: type
    items: list[Node]


@dataclass(frozen=True, slots=True)
class Plain:
    value: Any


Node = Slot | Wrapper | Table | Row | Plain


class Capture:
    """Takes trees down. One tensor that is met twice is one slot."""

    def __init__(self, known: list[Layout]) -> None:
        """`known`: the layouts of the capture before, to be used again."""
        self._known = known
        self.tensors: list[Tensor] = []
        self.layouts: list[Layout] = []
        self.names: list[str] = []
        self._slots: dict[int, Slot] = {}

    def tensor(self, tensor: Tensor, name: str) -> Slot | Wrapper:
        """Raises Unsupported."""
        if (slot := self._slots.get(id(tensor))) is not None:
            return slot
        if is_wrapper(tensor):
            inner, frame = inner_tensors(tensor)
            parts = {key: self.tensor(part, f"{name}.{key}") for key, part in inner}
            return Wrapper(type(tensor), frame, tensor.shape, tuple(tensor.stride()), parts)
        index = len(self.tensors)
        layout = layout_of(tensor, name, self._known[index] if index < len(self._known) else None)
        slot = self._slots[id(tensor)] = Slot(index)
        self.tensors.append(tensor)
        self.layouts.append(layout)
        self.names.append(name)
        return slot

    def tree(self, value: Any, name: str, depth: int = 0) -> Node:
        """Raises Unsupported."""
        if type(value) in _ATOMS:
            return Plain(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value, name)
        if depth == _DEEPEST:
            raise Unsupported(f"{name} is nested more than {_DEEPEST} deep")
        if isinstance(value, dict):
            return Table(type(value), [(k, self.tree(v, f"{name}[{k!r:.40}]", depth + 1)) for k, v in value.items()])
        if type(value) is list or isinstance(value, tuple):
            return Row(type(value), [self.tree(item, f"{name}[{i}]", depth + 1) for i, item in enumerate(value)])
        return Plain(_copied(value))


class Restoring:
    """What a restore writes. Nothing that lives is changed before write()."""

    def __init__(self, layouts: list[Layout]) -> None:
        self._layouts = layouts
        self.targets: dict[int, Tensor] = {}
        """slot -> the tensor that gets its values"""
        self._taken: set[int] = set()
        self._writes: list[Callable[[], object]] = []
        self._loads: list[tuple[str, Callable[[], object]]] = []
        self.new_bytes = 0
        """of tensors that had to be made"""

    def into(self, node: Slot | Wrapper, tensor: Tensor) -> str | None:
        """Makes a living tensor the target. Why it cannot be one: its metadata differs."""
        if isinstance(node, Wrapper):
            if type(tensor) is not node.kind:
                return f"is a {type(tensor).__name__} and was a {node.kind.__name__}"
            inner, frame = inner_tensors(tensor)
            if tensor.shape != node.shape or [key for key, _ in inner] != list(node.inner) or frame != node.frame:
                return "is sharded or packed in another way than it was"
            return next((why for key, part in inner if (why := self.into(node.inner[key], part)) is not None), None)
        if is_wrapper(tensor):
            return f"is a {type(tensor).__name__} and was a plain tensor"
        layout = self._layouts[node]
        if not layout.fits(tensor):
            return (f"is {tuple(tensor.shape)} {tensor.dtype} on {tensor.device} and was "
                    f"{tuple(layout.shape)} {layout.dtype} on {layout.device}").replace("torch.", "")
        if node in self.targets and self.targets[node] is not tensor:
            return "was one tensor with another, and is a tensor of its own"
        self.targets[node] = tensor
        self._taken.add(id(tensor))
        return None

    def planned(self, node: Node, now: Any) -> Any:
        """The value as it was, made of what stands there now where that fits."""
        if isinstance(node, Plain):
            return node.value if type(node.value) in _ATOMS else _copied(node.value)
        if isinstance(node, Slot):
            return self._tensor(node, now)
        if isinstance(node, Wrapper):
            return self._wrapper(node, now)
        if isinstance(node, Table):
            return self._table(node, now)
        there = now if isinstance(now, (list, tuple)) else ()
        items = [self.planned(item, there[i] if i < len(there) else None) for i, item in enumerate(node.items)]
        if node.kind is list:
            if type(now) is list:
                self._writes.append(lambda: now.__setitem__(slice(None), items))
                return now
            return items
        return node.kind(*items) if hasattr(node.kind, "_fields") else node.kind(items)

    def later(self, write: Callable[[], object]) -> None:
        self._writes.append(write)

    def load_after(self, name: str, load: Callable[[], object]) -> None:
        """Code that is not ours and may raise: called by load() alone."""
        self._loads.append((name, load))

    def write(self) -> None:
        """Containers and attributes; the values of tensors are copied by whoever has the arena."""
        for write in self._writes:
            write()

    def load(self) -> list[str]:
        """Once tensors have their values. Returns what was raised, by name."""
        errors = []
        for name, load in self._loads:
            try:
                load()
            except Exception as error:
                errors.append(f"{name}: {type(error).__name__}: {error}")
        return errors

    def _table(self, node: Table, now: Any) -> Any:
        there: Mapping[Any, Any] = now if isinstance(now, dict) else {}
        items = [(key, self.planned(item, there.get(key))) for key, item in node.items]
        if type(now) is node.kind:
            table = cast("dict[Any, Any]", now)
            self._writes.append(lambda: _refill(table, items))
            return table
        try:
            made: Any = node.kind()
        except TypeError:
            made = {}
        made.update(items)
        return made

    def _tensor(self, node: Slot, now: Any) -> Tensor:
        if (target := self.targets.get(node)) is not None:
            return target
        layout = self._layouts[node]
        fits = isinstance(now, torch.Tensor) and not is_wrapper(now) and id(now) not in self._taken
        if fits and now.layout == torch.strided and layout.fits(now):
            self.targets[node] = now
            self._taken.add(id(now))
            return now  # type: ignore[no-any-return]
        made = torch.empty(layout.shape, dtype=layout.dtype, device=layout.device)
        if layout.stride is not None:
            made = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=layout.device)
        self.new_bytes += layout.numel * layout.dtype.itemsize
        self.targets[node] = made
        return made

    def _wrapper(self, node: Wrapper, now: Any) -> Any:
        if isinstance(now, node.kind) and self.into(node, now) is None:
            return now
        inner = {key: self.planned(part, None) for key, part in node.inner.items()}
        return node.kind.__tensor_unflatten__({**inner, **node.frame.parts}, node.frame.context, node.shape, node.stride)


def _refill(table: dict[Any, Any], items: list[tuple[Any, Any]]) -> None:
    table.clear()
    table.update(items)


def _copied(value: Any) -> Any:
    """Functions, modules and locks are what they were."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
