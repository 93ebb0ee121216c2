"""Finds what trains in a process that nobody described: modules, optimizers, leaf tensors.

Looking goes through the garbage collector's objects, once when training begins and again when an optimizer
turns up whose parameters nobody knows: some 50 ms in a large process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import torch

from gradvane import _native

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

_INNER = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}
"""Wrappers, and where they keep the model: its own names are what its author knows."""


OWNS_NONE = (
    "attach: the optimizer owns none of the model's parameters; make it from this model's, after anything that "
    "replaces them"
)


def checked_model(model: object) -> Module | None:
    """What attach() was given as the model. Raises TypeError where it is none."""
    if model is None or isinstance(model, torch.nn.Module):
        return model
    raise TypeError(f"attach: the model is of type {type(model).__name__}, which is no torch.nn.Module; the order is "
                    "attach(model, optimizer)")


def listed_optimizers(optimizer: object) -> list[Optimizer]:
    """What attach() was given as the optimizer: none, one or several, without the wrappers of trainers. Raises TypeError
    where one has no param_groups, or steps in a way that no one sees."""
    if optimizer is None:
        return []
    if hasattr(optimizer, "param_groups") or isinstance(optimizer, str) or not hasattr(optimizer, "__iter__"):
        several = [optimizer]
    else:
        several = list(cast("Iterable[object]", optimizer))
    for one in several:
        if not hasattr(one, "param_groups"):
            raise TypeError(
                f"attach: the optimizer is of type {type(one).__name__}, which has no param_groups; pass a "
                "torch.optim.Optimizer or a list of them, or the model alone: every backward pass is a step then")
    found: list[Optimizer] = []
    for one in several:
        inner = without_wrappers(cast("Optimizer", one), set())
        if not inner:
            raise TypeError(
                f"attach: the optimizer is of type {type(one).__name__}, whose steps cannot be seen: it runs no step hooks "
                "of torch.optim.Optimizer, and no attribute of it holds an optimizer that does; pass the one that it "
                "wraps, or the model alone: every backward pass is a step then")
        found += [optimizer for optimizer in inner if not any(optimizer is known for known in found)]
    return found


def without_wrappers(optimizer: Optimizer, seen: set[int]) -> list[Optimizer]:
    """Those whose step() runs step hooks: the optimizer itself, or what it wraps. Accelerate's and Lightning's wrappers
    have hooks that are never called: their step() calls that of an optimizer inside them, and not at every call.
    `seen`: ids of those that have been looked into."""
    if runs_hooks(optimizer):
        return [optimizer]
    seen.add(id(optimizer))
    inner = getattr(optimizer, "optimizer", None)
    if hasattr(inner, "param_groups") and id(inner) not in seen:  # its parameters may be copies in full precision
        return without_wrappers(cast("Optimizer", inner), seen)
    params = {id(param) for param in parameters_of(optimizer)}
    found: list[Optimizer] = []
    for held in held_by(optimizer):
        if id(held) in seen or not any(id(param) in params for param in parameters_of(held)):
            continue
        found += without_wrappers(held, seen)
    return found


def held_by(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizers among its attributes, and in lists and dictionaries there."""
    values: list[object] = []
    for value in getattr(optimizer, "__dict__", {}).values():
        if type(value) in (list, tuple):
            values += cast("list[object]", value)
        elif type(value) is dict:
            values += cast("dict[object, object]", value).values()
        else:
            values.append(value)
    return [cast("Optimizer", value) for value in values if hasattr(type(value), "step") and hasattr(value, "param_groups")]


def runs_hooks(optimizer: Optimizer) -> bool:
    return bool(getattr(getattr(type(optimizer), "step", None), "hooked", False))


def instances(kind: type, young: bool = False) -> list[object]:
    """All of `kind` but tensors that the collector knows, or those that were made a moment ago. By type(), since a proxy's
    __class__ may run code of its own."""
    return _native.live_objects(kind, torch._C.TensorBase, young)


def live_optimizers() -> list[Optimizer]:
    """Those that run step hooks, which wrappers of Accelerate and Lightning do not; those that the script
    holds in globals of its own first, in its order."""
    from torch.optim import Optimizer

    everyone = cast("list[Optimizer]", instances(Optimizer))
    found = [o for o in everyone if runs_hooks(o) and o.param_groups]
    order = script_order()
    return sorted(found, key=lambda optimizer: order.get(id(optimizer), len(order)))


def main_globals() -> dict[str, object]:
    return dict(vars(sys.modules.get("__main__", object())) if "__main__" in sys.modules else {})


def script_things() -> Iterator[tuple[str, object]]:
    """What the script holds in globals, and in lists and dictionaries there, by name."""
    for name, value in main_globals().items():
        if name.startswith("__"):
            continue
        yield name, value
        if type(value) in (list, tuple):
            yield from ((f"{name}.{i}", item) for i, item in enumerate(cast("list[object]", value)))
        elif type(value) is dict:
            yield from ((f"{name}.{key}", item) for key, item in cast("dict[object, object]", value).items())


def script_order() -> dict[int, int]:
    """id -> place among the script's things."""
    order: dict[int, int] = {}
    for i, (_, thing) in enumerate(script_things()):
        order.setdefault(id(thing), i)
    return order


def parameters_of(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def unwrapped(module: Module) -> Module:
    while (attribute := _INNER.get(type(module).__name__)) is not None:
        inner = module._modules.get(attribute)
        if inner is None:
            break
        module = inner
    return module


def roots_owning(params: Iterable[Tensor], among_young: bool = False) -> list[Module]:
    """The outermost modules that own any of `params`, wrappers taken off, in the order of the script's
    globals where they are there. `among_young`: looks at modules only that were made a moment ago."""
    wanted = {id(param) for param in params}
    modules: list[Module] = instances(torch.nn.Module, among_young)  # type: ignore[assignment]
    parents: dict[int, list[Module]] = {}
    for module in modules:
        for child in module.__dict__.get("_modules", {}).values():
            if child is not None:
                parents.setdefault(id(child), []).append(module)
    owners = [
        module
        for module in modules
        if any(id(p) in wanted for p in module.__dict__.get("_parameters", {}).values() if p is not None)
    ]
    roots: dict[int, Module] = {}
    seen: set[int] = set()
    waiting = list(owners)
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        above = parents.get(id(module), [])
        if not above:
            inner = unwrapped(module)
            roots[id(inner)] = inner
        waiting.extend(above)
    order = script_order()
    return sorted(roots.values(), key=lambda module: order.get(id(module), len(order)))


def leaves_of(roots: list[Tensor]) -> list[Tensor]:
    """The leaf tensors that a backward pass from `roots` gives gradients to."""
    leaves: dict[int, Tensor] = {}
    seen: set[object] = set()
    waiting = [root.grad_fn for root in roots]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor) and leaf.is_leaf:
            leaves[id(leaf)] = leaf
        waiting.extend(function for function, _ in node.next_functions)
    return list(leaves.values())


def owns_any(optimizer: Optimizer, model: Module) -> bool:
    """Whether an optimizer steps any of a model's parameters; a model without any is no reason to refuse."""
    owned = {id(param) for param in model.parameters()}
    return not owned or any(id(param) in owned for param in parameters_of(optimizer))


def foreign_runtimes() -> list[str]:
    """One line for each runtime in this process that keeps parameters in its own way. Looks at each object of the process."""
    lines = []
    kinds = {(type(m).__module__.split(".")[0], type(m).__name__) for m in instances(torch.nn.Module)}
    if ("torch", "FullyShardedDataParallel") in kinds:
        lines.append("FSDP1: norms and counts are of the flat parameters' parts in this process; FSDP2 is known in full")
    if any(name == "DeepSpeedEngine" for _, name in kinds):
        lines.append("DeepSpeed: losses and steps are seen; norms are of its flat partitions, if its optimizer is torch's")
    if "megatron.core.optimizer.distrib_optimizer" in sys.modules:
        lines.append("Megatron's distributed optimizer: losses and steps are seen; norms are of this rank's shards")
    return lines
