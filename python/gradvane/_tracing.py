"""Watches a step for the module that goes bad first: every module's inputs, outputs and gradients are asked whether
they are finite, without a wait, and the answers are fetched once, when the step is over.

While no step is watched, nothing is here. A watched step has two hooks for all modules of the process (none on a
module itself: a copy or a checkpoint of it would take it along) and one on each tensor that passes between modules
and on each weight. They return nothing, keep no tensor and change none. Inside torch.compile they vanish.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module
from torch.utils.weak import TensorWeakRef

from gradvane import _finding
from gradvane._finite_checks import FiniteChecks
from gradvane._blame import Call, Event, Kind, Passage, Verdict, first_bad, nearest
from gradvane._watch.events import contained
from gradvane._process.unwarned import Unwarned
from gradvane._records import TracedModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from torch.nn import Module

    from gradvane._naming import Names
    from gradvane._records import Incident

_MOST_EVENTS = 200_000
"""of one step: what runs with gradients and never steps must not fill the memory"""
_DEEPEST = 6
_SAID_BY_TORCH = r"Using `torch\.compile\(module\)` when there are global hooks on modules"
_watch: Watch | None = None


def tensors_in(thing: object, depth: int = 0) -> Iterator[Tensor]:
    """In tuples, lists, dictionaries and dataclasses."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif depth < _DEEPEST:
        items: Any = ()
        if isinstance(thing, (tuple, list)):
            items = thing
        elif isinstance(thing, dict):
            items = thing.values()
        elif hasattr(type(thing), "__dataclass_fields__"):
            items = [getattr(thing, name, None) for name in thing.__dataclass_fields__]  # type: ignore[attr-defined]
        for item in items:
            yield from tensors_in(item, depth + 1)


# The hooks. Functions of the file, so that a compiled model's guards see the same ones in each step.


def _before(module: Module, args: tuple[Any, ...]) -> None:
    if torch.compiler.is_compiling():
        return
    if _watch is not None:
        _watch.before(module, args)


def _after(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
    if torch.compiler.is_compiling():
        return
    if _watch is not None:
        _watch.after(module, kwargs, output)


def _is_elsewhere() -> bool:
    """Where tensors are none that could be read: under a tracer, a function transform or a graph's capture."""
    return (
        torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )


class Watch:
    """One step's."""

    def __init__(self, checks: FiniteChecks, asks_weights: bool, faults: int) -> None:
        self.checks = checks
        self.events: list[Event] = []
        self.micro_step = 1
        self.faults = faults
        self.seconds = 0.0
        self._asks_weights = asks_weights
        self._order = 0
        self._loss_order = 0
        self._threads = threading.local()
        self._passages: dict[int, tuple[TensorWeakRef, int, Passage]] = {}
        self._first_calls: dict[int, Call] = {}
        self._weights: set[int] = set()
        self._handles: list[Any] = []

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # Forward --------------------------------------------------------------------------------------

    @contained
    def before(self, module: Module, args: tuple[Any, ...]) -> None:
        began = time.perf_counter()
        stack = self._stack()
        if stack and stack[0].module is module:
            stack.clear()  # an exception left them
        parent = stack[-1] if stack else None
        call = Call(module, parent, self._next())
        stack.append(call)
        call.is_ignored = parent.is_ignored if parent else not torch.is_grad_enabled()
        if call.is_ignored or self._is_deaf():
            call.is_ignored = True
            return
        call.is_again = torch._C._current_graph_task_id() != -1
        first = self._first_calls.setdefault(id(module), call)
        if call.is_again and parent is None:
            call.parent = first.parent
        if self._asks_weights and first is call:
            for weight in module._parameters.values():
                if weight is not None:
                    self._ask(Kind.WEIGHT, weight, call)
        for tensor in tensors_in(args):
            self._give(call, tensor)
        self.seconds += time.perf_counter() - began

    @contained
    def after(self, module: Module, kwargs: dict[str, Any], output: object) -> None:
        began = time.perf_counter()
        stack = self._stack()
        if all(call.module is not module for call in stack):
            return  # it began before the watch did
        while (call := stack.pop()).module is not module:
            pass  # an exception left it
        if call.is_ignored or self._is_deaf():
            return
        for tensor in tensors_in(kwargs):  # which nobody is shown before the call
            passage = self._give(call, tensor)
            if passage.source is call:  # seen within it first
                passage.source = call.parent
        for tensor in tensors_in(output):
            made = self._known(tensor)
            if made is None:
                made = self._follow(tensor, call.parent)
                self._ask(Kind.OUTPUT, tensor, call, made)
            made.home = call.parent
            call.outputs.append(made.question)
        if self._first_calls.get(id(module)) is call:
            self._follow_weights(call)
        self.seconds += time.perf_counter() - began

    def _give(self, call: Call, tensor: Tensor) -> Passage:
        passage = self._known(tensor)
        if passage is None:
            passage = self._follow(tensor, call.parent)
            passage.source = call.parent
            self._ask(Kind.INPUT, tensor, call, passage)
        passage.takers.append(call)
        return passage

    def _ask(self, kind: Kind, tensor: Tensor, call: Call, passage: Passage | None = None) -> None:
        question = -1 if call.is_again else self._question(tensor)
        if question < 0:
            return
        if passage is not None:
            passage.question = question
        order = call.order if kind is Kind.INPUT else self._next()
        self.events.append(Event(order, kind, question, call, passage, self.micro_step))

    def _known(self, tensor: Tensor) -> Passage | None:
        reference, version, passage = self._passages.get(id(tensor), (None, 0, None))
        is_same = reference is not None and reference() is tensor and version == _version(tensor)
        return passage if is_same else None

    def _follow(self, tensor: Tensor, home: Call | None) -> Passage:
        passage = Passage(home, -1)
        self._passages[id(tensor)] = (TensorWeakRef(tensor), _version(tensor), passage)
        if tensor.requires_grad:
            self._handles.append(tensor.register_hook(functools.partial(self.gradient, passage, None)))
        return passage

    def _follow_weights(self, call: Call) -> None:
        for weight in call.module._parameters.values():
            if weight is None or not weight.requires_grad or id(weight) in self._weights:
                continue
            self._weights.add(id(weight))
            self._handles.append(weight.register_hook(functools.partial(self.gradient, None, call)))

    # Backward -------------------------------------------------------------------------------------

    @contained
    def gradient(self, passage: Passage | None, call: Call | None, gradient: Tensor | None) -> None:
        """Of a tensor between modules, or of a weight of `call`'s module."""
        if torch.compiler.is_compiling() or gradient is None or self._is_deaf():
            return
        began = time.perf_counter()
        question = self._question(gradient)
        if question >= 0:
            kind = Kind.WEIGHT_GRADIENT if passage is None else Kind.GRADIENT
            self.events.append(Event(self._next(), kind, question, call, passage, self.micro_step))
        self.seconds += time.perf_counter() - began

    def pass_begins(self) -> None:
        self._loss_order = self._next()

    def pass_ended(self, loss: Tensor | None) -> None:
        """The loss is known by now, without a scaler's factor; what it says comes before the gradients."""
        question = -1 if loss is None else self._question(loss)
        self.events.append(Event(self._loss_order, Kind.LOSS, question, None, None, self.micro_step))
        self.micro_step += 1

    # ----------------------------------------------------------------------------------------------

    def _question(self, tensor: Tensor) -> int:
        question: int = self.checks.add(getattr(tensor, "_local_tensor", tensor))  # a DTensor has its part in there
        return question

    def _is_deaf(self) -> bool:
        return len(self.events) >= _MOST_EVENTS or _is_elsewhere()

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _stack(self) -> list[Call]:
        """Of the calls that this thread is in."""
        stack: list[Call] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


class Tracer:
    """When steps are watched, and what comes of it. incident() and ask() are for any thread, the rest for the one
    that trains."""

    def __init__(
        self, native: Any, names: Names, optimizers: Callable[[], int], say: Callable[[str], None]
    ) -> None:
        self._native = native
        self._names = names
        self._optimizers = optimizers
        self._say = say
        self._mode: str = native.trace_mode()
        self._is_armed = False
        self._left = 0
        self._thread: int | None = None
        self._watch: Watch | None = None
        self._hooks: list[Any] = []
        self._unwarned = Unwarned(_SAID_BY_TORCH)
        self._last_incident = 0
        self.faults = 0
        self.found: TracedModule | None = None

    def starts(self) -> None:
        """Before the first step that the agent sees."""
        if self._mode == "always" and self._watch is None:
            self.begin()

    def incident(self, incident: Incident) -> None:
        """On whatever thread tells of it. The step after the one in progress is watched, once for each."""
        is_new = incident.kind.startswith("nonfinite") and incident.id > self._last_incident
        if self._mode == "next_step" and is_new and incident.closed_at is None:
            self._last_incident = incident.id
            self._is_armed = True

    def ask(self) -> None:
        """Any thread. On the one that trains, between steps, the next step is the one in progress."""
        self._is_armed = True
        if self._watch is None and self._thread in (None, threading.get_ident()):
            self.begin()

    @contained
    def begin(self) -> None:
        """Between steps: it is decided here whether the next one is watched. What is asked for lasts until each
        optimizer may have had its turn."""
        if self._is_armed:
            self._left = max(self._optimizers(), 1)
        if self._left > 0 or self._mode == "always":
            self._open()
        elif self._hooks:
            self.stop()

    def _open(self) -> None:
        global _watch
        is_asked, self._is_armed = self._left > 0, False
        _watch = self._watch = Watch(FiniteChecks(self._native.own_calls), is_asked, self.faults)
        if self._hooks:
            return
        self._hooks.append(torch_module.register_module_forward_pre_hook(_before))
        self._hooks.append(torch_module.register_module_forward_hook(_after, with_kwargs=True))
        self._unwarned.begin()

    def stop(self) -> None:
        """No hook is left."""
        global _watch
        while self._hooks:
            hook = self._hooks.pop()
            hook.remove()
            torch_module._global_forward_hooks_with_kwargs.pop(hook.id, None)  # which torch forgets
        self._unwarned.end()
        if self._watch is not None:
            _watch = None if _watch is self._watch else _watch
            self._watch.end()
            self._watch = None

    @contained
    def pass_begins(self) -> None:
        if self._watch is not None:
            self._watch.pass_begins()

    @contained
    def pass_ended(self, loss: Tensor | None) -> None:
        if self._watch is not None:
            self._watch.pass_ended(loss)

    @contained
    def step_ends(self, optimizer: int) -> None:
        """Before the agent ends the step of `optimizer`."""
        global _watch
        self._thread = threading.get_ident()
        watch, self._watch = self._watch, None
        if watch is not None:
            _watch = None
            watch.end()
            self.faults = watch.faults
            began = time.perf_counter()
            answers, host_syncs = watch.checks.take()  # may wait: no one waits for this thread
            self._native.note_checks(host_syncs, watch.seconds + time.perf_counter() - began)
            verdict = first_bad(watch.events, answers)
            self._left = 0 if verdict is not None else max(self._left - 1, 0)
            if verdict is not None:
                self._tell(optimizer, verdict)
        if self._hooks or self._is_armed:
            self.begin()

    def _tell(self, optimizer: int, verdict: Verdict) -> None:
        named = self._names.of_modules()
        module = nearest(verdict.call, lambda module: id(_finding.unwrapped(module)) in named)
        inner = None if module is None else _finding.unwrapped(module)
        kind = "" if inner is None else type(inner).__name__
        name = "" if inner is None else named.get(id(inner), kind)
        where = (name, kind, verdict.at, verdict.is_backward, verdict.micro_step)
        self.found = TracedModule(*where, run_step=self._native.trace_found(optimizer, *where))
        if self._mode != "always":
            self._say(self.found.sentence())
