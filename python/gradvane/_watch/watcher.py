"""What the hooks hand over to: decides which optimizer an event belongs to, and calls the native agent. Whatever fails in
here is counted, logged once, and leaves training alone.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import TensorWeakRef

from gradvane import _finding
from gradvane._governor.keeper import Keeper
from gradvane._ranks.courier import NormExchange
from gradvane._ranks.waiting import Reductions
from gradvane._watch.clips import Clips
from gradvane._watch.device_skips import DeviceSkips
from gradvane._watch.events import contained, losses_among, roots_of, sum_of
from gradvane._ranks.agreement import Agreement
from gradvane._watch.governing import TAKE, Governing
from gradvane._watch.finds import Finds
from gradvane._watch.known import Known, is_part, optimizers_of, shells_of
from gradvane._watch.left_behind import LeftBehind
from gradvane._watch.phases import Phases
from gradvane._watch.running import InThread, Running
from gradvane._watch.scaler_checks import ScalerChecks
from gradvane._watch.scaling import Scaling
from gradvane._watch.swarm import Swarm, swarm_of
from gradvane._watch.trainers import Trainers
from gradvane._tracing import Tracer

if TYPE_CHECKING:

    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from gradvane._naming import Names

_UNSEEN_STEPS = 2
"""times that gradients were cleared without a step, until we believe that none will be seen"""
_MOST_GONE = 256
"""optimizers that were watched and are gone: each keeps some memory, and scripts may make one for each of many tasks"""


class Watcher:
    """One for each agent; called by the threads that train, or by those of their backward passes."""

    def __init__(self, native: Any, names: Names) -> None:
        self._native = native
        self._names = names
        self._scopes: list[weakref.ref[Module]] = []
        self._watches_all = False
        self._known: dict[int, Known] = {}
        self._gone: list[int] = []
        self._here = InThread(native)
        self.trainers = Trainers(native)
        self.finds = Finds(native, names)
        self._scaling = Scaling()
        self._looking = threading.RLock()
        self.has_looked = True
        self.loop: int | None = None
        self._unseen = self._adopted = 0
        self._swarm: Swarm | None = None
        self._norms = NormExchange(native)
        self.governing = Governing(native, self._here)
        self.device_skips = DeviceSkips(native, self._here)
        self.agreement = Agreement(native)
        self._reductions = Reductions(native, names.budget, self.finds.say)
        self.left_behind = LeftBehind(native, self._known, self._scaling, self.is_busy, self.trainers)
        self.optimizer_clears, self.module_clears = self.left_behind.by_optimizer, self.left_behind.by_module
        self.scaler_checks = ScalerChecks(native, self._known)
        self.clips = Clips(native, self._known, self._here, self)
        self.clipping, self.before_total_norm = self.clips.clipping, self.clips.before_total_norm
        self.phases = Phases(native, self._here, self._known)
        self.mode_changes = self.phases.evaluation.mode_changes
        self.tracer = Tracer(native, names, lambda: len(self._known), self.finds.say)
        self.keeper = Keeper(names.roots, lambda: optimizers_of(self._known, self._swarm), native.last_run_step)
        self.faults = 0

    # What is watched ------------------------------------------------------------------------------

    def watch(self, model: Module | None, optimizers: list[Optimizer]) -> None:
        """As attach(). Raises ValueError where an optimizer owns none of the model's parameters."""
        of_model = None if model is None else {id(param) for param in model.parameters()}
        for optimizer in optimizers:
            if of_model and not any(id(param) in of_model for param in _finding.parameters_of(optimizer)):
                raise ValueError(_finding.OWNS_NONE)
            if self.governing.acts and (why := self.governing.why_not(optimizer)):
                raise ValueError(why)
        if model is not None:
            self._names.add(model)
        self._names.know(param for optimizer in optimizers for param in _finding.parameters_of(optimizer))
        with self._looking:
            for optimizer in optimizers:
                if id(optimizer) not in self._known:
                    self._adopt(optimizer)
        if optimizers:
            return
        self._watches_all |= model is None
        if model is not None:
            self._scopes.append(weakref.ref(model))
        self.has_looked = False

    def only(self) -> int | None:
        """What calls without an optimizer mean."""
        indices = [known.index for known in list(self._known.values())] + ([] if self.loop is None else [self.loop])
        return indices[0] if len(indices) == 1 else None

    def _adopt(self, optimizer: Optimizer) -> int | None:
        self._names.know(_finding.parameters_of(optimizer))
        self._norms.exchange(_finding.parameters_of(optimizer))
        index: int = self._native.attach(self._names, optimizer)
        if index < 0:  # the run is switched off or over
            return None
        self._adopted += 1
        key = id(optimizer)
        self._known[key] = Known(index, weakref.ref(optimizer, lambda _: self._forget(key, index)))
        if self.governing.acts and (why := self.governing.why_not(optimizer)):
            self.finds.say(f"no policy acts on the steps of {type(optimizer).__name__}: {why}")
        if self.loop is not None:
            self._native.detach(self.loop)
            self.loop = None
        return index

    def _adopt_loop(self, params: list[Tensor]) -> None:
        """Watches a loop that has no optimizer: every backward pass is a step."""
        self._names.know(params)
        self._norms.exchange(params)
        index: int = self._native.attach(self._names, None)
        self.loop = None if index < 0 else index

    def stop(self) -> None:
        """Before the run ends: what is still on its way arrives, or not at all."""
        self.keeper.stop()
        self.trainers.note()  # those that trained may have ended
        self.finish_loop()
        self._norms.stop()
        self.agreement.stop()

    def _forget(self, key: int, index: int) -> None:
        """The optimizer was collected: its parameters may go too."""
        if (known := self._known.get(key)) is not None and known.index == index:
            del self._known[key]
            self._scaling.forget(key)
        if not self._native.detach(index):
            self._gone.append(index)

    def _index(self, optimizer: Optimizer) -> int | None:
        while self._gone:
            self._native.detach(self._gone.pop())
        if (known := self._known.get(id(optimizer))) is not None:
            return known.index
        if self._adopted - len(self._known) >= _MOST_GONE:
            self.finds.say(f"{_MOST_GONE} optimizers have come and gone: new ones are not watched")
            return None
        with self._looking:
            self.look_around([])
            if (known := self._known.get(id(optimizer))) is not None:
                return known.index
            if not self._is_wanted(optimizer):
                return None
            index = self._adopt(optimizer)
            self._tell_found()
            return index

    def _is_wanted(self, optimizer: Optimizer) -> bool:
        scopes = [model for reference in self._scopes if (model := reference()) is not None]
        is_meant = self._watches_all or any(_finding.owns_any(optimizer, model) for model in scopes)
        return is_meant or is_part(optimizer, self._known, self._here.running)

    def look_around(self, roots: list[Tensor]) -> None:
        """Once, when training begins."""
        with self._looking:
            if not self.has_looked:
                self.has_looked = True
                self._look(roots)

    def _look(self, roots: list[Tensor]) -> None:
        found = [o for o in _finding.live_optimizers() if id(o) not in self._known and self._is_wanted(o)]
        if self._swarm is None and (swarm := swarm_of(found)) is not None:
            self._names.know(param for group in swarm.param_groups for param in group["params"])
            swarm.index = self._native.attach(self._names, swarm)
            self._swarm = swarm if swarm.index >= 0 else None  # not before it is whole: other threads look at it
        self._names.know(param for optimizer in found for param in _finding.parameters_of(optimizer))
        for optimizer in found:
            if self._swarm is None or not self._swarm.has(optimizer):
                self._adopt(optimizer)
        if not self._known and self._swarm is None and roots:
            self._adopt_loop(_finding.leaves_of(roots))
        if self._known or self.loop is not None or self._swarm is not None:
            self._tell_found()
        for runtime in _finding.foreign_runtimes():
            self.finds.say(runtime)

    def _tell_found(self) -> None:
        self.finds.say_watched([known.optimizer() for known in list(self._known.values())], self._swarm)
        if self.loop is not None or self._swarm is not None:
            self.finds.say_no_policy(self.governing.acts)

    # Backward passes ------------------------------------------------------------------------------

    def before_backward(self, tensors: Any) -> bool:
        """True for the outermost one: checkpointing runs others inside."""
        if self._is_in_backward():
            return False
        self._here.backward_depth, self._here.trains = 1, True
        try:
            self.trainers.note()
            self._enter_backward(tensors)
            self._reductions.pass_begins(tensors)
        except BaseException:  # an interrupt
            self._here.backward_depth = 0
            raise
        return True

    @contained
    def _enter_backward(self, tensors: Any) -> None:
        if not self.has_looked:
            self.look_around(losses_among(roots_of(tensors)))
        self.phases.evaluation.ends()
        self._here.running.forget_left(self._known)
        self.finish_loop()
        self._look_at_swarm()
        self.tracer.pass_begins()
        unseen = self._native.before_backward(bool(self._here.running))
        if unseen and not any(known.steps for known in list(self._known.values())):
            self._unseen += 1
            if self._unseen == _UNSEEN_STEPS:
                self.finds.say("no optimizer's step can be seen here (a compiled one?): every backward pass is one")
                self.finds.say_no_policy(self.governing.acts)

    def _is_in_backward(self) -> bool:
        """Also in a thread of the pass itself, which is where devices have theirs."""
        return self._here.backward_depth > 0 or torch._C._current_graph_task_id() != -1

    def is_busy(self) -> bool:
        """In a step or in a backward pass."""
        return bool(self._here.running) or self._is_in_backward()

    def after_backward(self, tensors: Any, has_ended: bool) -> None:
        self._here.backward_depth = 0
        self._reductions.pass_ended(has_ended)
        if has_ended:
            self._leave_backward(tensors)
        else:
            self._native.backward_failed()

    @contained
    def _leave_backward(self, tensors: Any) -> None:
        roots = roots_of(tensors)
        losses = losses_among(roots)
        self._here.last_root = TensorWeakRef(losses[0]) if len(losses) == 1 else None
        unscaled = self._scaling.pass_ended(roots)
        loss = sum_of(unscaled) if losses else None
        self._native.after_backward(loss)
        self.tracer.pass_ended(loss)
        if (swarm := self._swarm) is not None and swarm.is_in_backward:
            swarm.is_in_backward = False
            self.tracer.step_ends(swarm.index)
            self._native.parts_end(swarm.index, loss)
        for index in self._loops():
            self._native.loop_read(index)
            self.tracer.step_ends(index)

    def _look_at_swarm(self) -> None:
        if self._swarm is None:
            return
        with self._looking:
            swarm = self._swarm
            if swarm is None:
                return
            if not swarm.is_none(self.trainers.others_train()):
                self._native.parts_begin(swarm.index)
                return
            self._swarm = None
            self._native.detach(swarm.index)
            for member in [member for member in swarm.members() if id(member) not in self._known]:
                self._adopt(member)
            self._tell_found()

    @contained
    def finish_loop(self) -> None:
        """A step that is known by its backward pass alone ends where the next one begins, or with the run."""
        for index in self._loops():
            self._native.loop_step_ends(index)
        if (swarm := self._swarm) is not None and not self.trainers.others_train():
            self._native.loop_step_ends(swarm.index)

    def _loops(self) -> list[int]:
        """Whose steps are known by backward passes alone: there is no optimizer, or it hides."""
        if self.loop is not None:
            return [self.loop]
        if self._unseen < _UNSEEN_STEPS:
            return []
        return [known.index for known in list(self._known.values())]

    @contained
    def take_loss(self, loss: Tensor | float) -> None:
        """From the script itself. One that was a backward pass's root before is that step's already."""
        if not isinstance(loss, torch.Tensor):  # as it is, whatever the program's default dtype and device
            loss = torch.tensor(loss, dtype=torch.float64, device="cpu")
        if self._here.last_root is None or self._here.last_root() is not loss:
            self._native.take_loss(loss)

    # Steps ----------------------------------------------------------------------------------------

    @contained
    def before_step(self, optimizer: Optimizer, has_closure: bool) -> bool:
        """Whether the step must be left out."""
        if torch._C._current_graph_task_id() == -1:
            self._here.backward_depth = 0  # an interrupt may have left it so
        self.trainers.note()
        if (swarm := self._swarm) is not None and swarm.has(optimizer):
            self._before_step_of(swarm, optimizer)
            return False
        index = self._index(optimizer)
        if index is None:
            return False
        if self._here.running:
            self._here.running.forget_failed(optimizer)
            if self._here.running.enter_inner(optimizer) or self._here.running.are_made_of(optimizer, self._known):
                return False
        running = Running(index, id(optimizer), has_closure)
        self._here.running.append(running)
        scale, is_scaled = self._scaling.at_step(optimizer)
        if scale is not None and not has_closure:  # without one, the step begins with a read by itself
            self._native.read(index, "optimizer", scale, is_scaled)
        running.verdict = self._native.step_begins(index, has_closure, self.device_skips.may_be_left(optimizer))
        if self.agreement.is_on and not has_closure:
            running.verdict = self.agreement.judge(index)
        self._reductions.before_step(index, optimizer)
        return running.verdict != TAKE

    def _before_step_of(self, swarm: Swarm, optimizer: Optimizer) -> None:
        if self._is_in_backward():
            swarm.is_in_backward = True
            self._native.read_parts(swarm.index, list(_finding.parameters_of(optimizer)))
        else:  # one after the other, behind the pass: the first one sees all gradients
            swarm.steps_behind(optimizer)
            if not self.trainers.others_train():
                self._native.loop_read(swarm.index)

    @contained
    def evaluated(self, optimizer: Optimizer) -> None:
        """The closure that the optimizer's step was given has returned."""
        if self._here.running and self._here.running[-1].key == id(optimizer):
            self._native.evaluated(self._here.running[-1].index)

    @contained
    def after_step(self, optimizer: Optimizer) -> int:
        """What the governor has decided."""
        running = self._here.running.leave(optimizer)
        if running is None:
            return TAKE
        self._unseen = 0
        self.tracer.step_ends(running.index)
        verdict: int = self._native.step_ends(running.index, running.has_closure, running.verdict != TAKE)
        if (known := self._known.get(id(optimizer))) is not None:
            known.steps += 1
            for key, index in shells_of(optimizer, self._known) if known.steps == 1 else ():
                self._forget(key, index)
        return running.verdict or verdict

    def read(self, index: int, optimizer: Optimizer | None, where: str) -> bool:
        return bool(self._native.read(index, where, *self._scaling.state_of(optimizer)))

    @contained
    def profiler_begins(self, name: str) -> None:
        self._native.profiler_begins(name)

    @contained
    def profiler_ended(self) -> None:
        self._native.profiler_ended()

    @contained
    def scaled(self, scaler: Any, loss: object, result: object) -> None:
        self._scaling.scaled(scaler, loss, result)

    @contained
    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        self._scaling.step_begins(scaler, optimizer)
        index = self._index(optimizer)
        if index is not None:
            self._here.steps_before = self._known[id(optimizer)].steps
            self.read(index, optimizer, "scaler")

    @contained
    def after_scaler_step(self, optimizer: Optimizer, has_ended: bool) -> int:
        """What the governor has decided about a step that the scaler has skipped."""
        self._scaling.step_ended()
        known = self._known.get(id(optimizer))
        if not has_ended or known is None or known.steps != self._here.steps_before:
            return TAKE
        self.tracer.step_ends(known.index)
        agreed = self.agreement.judge(known.index) if self.agreement.is_on else TAKE
        verdict: int = self._native.step_skipped(known.index)
        return agreed or verdict
