"""Keeps the last good states of a training and goes back to one: what hooks and the agent call.

Snapshots and rollbacks happen right after the step of the optimizer that ends an iteration. What follows in the loop, a
scheduler's step for one, happens after a rollback as it would have happened after the step whose state is back.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from gradvane._errors import GradvaneError
from gradvane._governor import random_states
from gradvane._governor.cadence import Cadence
from gradvane._governor.copies import Copies
from gradvane._governor.leader import Leader
from gradvane._governor.rollback import HalfRestored, Request, Restorer
from gradvane._governor.snapshots import Snapshots
from gradvane._governor.state import TrainingState
from gradvane._governor.streams import CudaStreams
from gradvane._log import logger
from gradvane._watch.events import contained

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch.nn import Module
    from torch.optim import Optimizer

    from gradvane._governor.generations import Generation
    from gradvane._governor.restoring import OptimizerPolicy
    from gradvane._governor.record import Rollback
    from gradvane._governor.streams import Streams



class Keeper:
    """Belongs to the thread that trains. Its hooks do nothing while snapshots are off."""

    def __init__(self, roots: Callable[[], list[Module]], optimizers: Callable[[], list[Optimizer]],
                 run_step: Callable[[], int] | None = None, streams: Streams | None = None,
                 clock: Callable[[], float] = time.perf_counter) -> None:
        """`run_step`: the number of the step that has just ended; without it, the steps of the leader are counted."""
        self._clock = clock
        self._optimizers = optimizers
        self._state = TrainingState(roots, optimizers)
        self._copies = Copies(streams or CudaStreams())
        self.badness: Callable[[], str | None] = lambda: None
        """why no snapshot may be taken now; None if one may"""
        self.snapshots = Snapshots(self._state, self._copies, clock, lambda: self.badness())
        self._restorer = Restorer(self._state, self.snapshots, self._copies, clock)
        self._cadence = Cadence(0, 0.0, 0.0)
        self.snapshots.note_lost = lambda: self._cadence.lost()
        self._leader = Leader()
        self._callbacks: list[Callable[[Rollback], object]] = []
        self._thread: int | None = None
        self._is_shared = False
        """optimizers step in several threads: none of them can know what another one writes"""
        self._asked: Request | None = None
        """a rollback that waits for its place in the loop"""
        self._steps_since_asked = 0
        """of any optimizer"""
        self._batches = 0
        self._has_batches = False
        self._follows_batches = False
        self._stepped_inside: int | None = None
        self.faults = 0
        self._run_step = run_step
        self.step = 0
        """of the run, when an iteration ended last"""
        self.rollbacks = 0
        self.note_rollback: Callable[[Rollback], object] = lambda _done: None
        """called once for each"""
        self.note_failure: Callable[[], object] = lambda: None
        """called where a policy's rollback has waited for the end of an iteration, and cannot be made there"""
        self._broken: HalfRestored | None = None
        self.failed_rollbacks = 0
        self.last_failure = ""

    def keep(self, every: int = 0, seconds: float = 0.0, budget: float = 0.0, is_common: bool = False) -> None:
        """Takes snapshots every `every` steps or `seconds`, with 0 for never; `budget`: the share of time that they may
        take, 0 for no bound. `is_common`: as Cadence has it."""
        self._cadence = Cadence(every, seconds, budget, is_common)

    def set_devices(self, own_calls: Callable[[int], object], synchronizes: bool) -> None:
        """`own_calls`: told +1 before calls to a device and -1 after them. `synchronizes`: a rollback first waits for
        everything on each device."""
        self._copies.own_calls, self._copies.synchronizes_devices = own_calls, synchronizes

    @property
    def is_asked(self) -> bool:
        """Whether a rollback waits for its place in the loop."""
        return self._asked is not None

    # Hooks ----------------------------------------------------------------------------------------

    @contained
    def before_step(self) -> None:
        """An optimizer is about to write."""
        if self.snapshots.is_pending():
            began = self._clock()
            self.snapshots.before_update()
            self.snapshots.settle()
            self._cadence.also_took(self._clock() - began)

    @contained
    def after_step(self, optimizer: Any, is_inside: bool = False) -> Rollback | None:
        """An optimizer has written. Goes back if that was asked for, else takes the snapshot that is due. `is_inside`:
        it is in a backward pass or in another optimizer's step, and that ends the iteration."""
        if self._asked is None and not self._cadence.is_on:
            return None
        self._stepped_inside = id(optimizer) if is_inside else None
        if is_inside:
            return None
        everyone = [id(one) for one in self._optimizers()]
        if id(optimizer) not in everyone:
            return None
        leads = self._leader.stepped(id(optimizer), everyone)
        if self._asked is not None:
            self._steps_since_asked += 1
        return self._iteration_ends(leads)

    @contained
    def batch_comes(self) -> None:
        """A DataLoader has given a batch to the thread that trains."""
        self._batches += 1
        self._has_batches = True
        self.draws()

    def draws(self) -> None:
        """The loop has drawn what it draws between steps: a sampler's order at the start of an epoch, for one. A
        snapshot's random numbers are those of the last such moment before the next backward pass, so that the batches
        after a rollback go on with them."""
        if not self._follows_batches:
            return
        generation = self.snapshots.latest()
        if generation is not None and generation.captured is not None and generation.restores == 0:
            devices = {layout.device for layout in generation.captured.layouts}
            generation.captured.random = random_states.taken(devices)

    def backward_begins(self) -> None:
        self._follows_batches = False

    @contained
    def backward_ended(self, is_inside: bool = False) -> None:
        """`is_inside`: an optimizer's step, with a closure."""
        if self._stepped_inside is not None and not is_inside:
            key, self._stepped_inside = self._stepped_inside, None
            if any(id(one) == key for one in self._optimizers()):
                self._iteration_ends(True)

    def raise_if_broken(self) -> None:
        """Raises HalfRestored once, after a hook in which a rollback that the script had asked for broke off: there is no
        policy that would stop the run."""
        if self._broken is not None:
            error, self._broken = self._broken, None
            raise error

    # What a script asks ---------------------------------------------------------------------------

    def snapshot(self) -> bool:
        """Takes one now, whole: whatever the loop does next, streams wait for the copies. False if it was refused."""
        self._check_thread()
        self._number()
        self.snapshots.settle(wait=True)
        self._follows_batches = False
        began = self.snapshots.committed
        self.snapshots.take(self.step, self._batches, overlaps=False)
        self.snapshots.settle(wait=True)
        return self.snapshots.committed > began

    def ask(self, reason: str, optimizer: OptimizerPolicy = "restore", lr_factor: float = 1.0,
            bad_step: int | None = None) -> None:
        """Goes back after the step in progress or, between steps, after the next one: with several optimizers at the
        end of the iteration. The first of several reasons counts."""
        self._wait_for_place(Request(reason, optimizer, lr_factor, bad_step))

    def act(self, optimizer: Optimizer | None, asked: Request) -> bool:
        """A policy's rollback, within the hook of a step that was left out. With several optimizers it may come at the
        end of the iteration. False: there is nothing to go back to. The first of several reasons counts."""
        self._wait_for_place(asked)
        if self.snapshots.latest() is None or optimizer is None:
            self._asked = None
            return False
        return self.after_step(optimizer) is not None or self._asked is not None

    def rollback(self, reason: str, optimizer: OptimizerPolicy = "restore", lr_factor: float = 1.0,
                 bad_step: int | None = None) -> Rollback:
        """Goes back now. Gradients are dropped: they are of weights that are gone. Raises GradvaneError, and has
        changed nothing then, HalfRestored aside."""
        self._check_thread()
        asked = Request(reason, optimizer, lr_factor, bad_step)
        self._asked = None
        self._number()
        done = self._go_back(asked)
        for one in self._optimizers():
            for group in one.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        self._report(done)
        return done

    def go_back(self, reason: str, optimizer: OptimizerPolicy, lr_factor: float, when: str) -> Rollback | None:
        """As Agent.rollback()."""
        if when not in ("now", "after_step"):
            raise GradvaneError(f"rollback: when = {when!r} is not allowed; allowed: now, after_step")
        if when == "now":
            return self.rollback(reason, optimizer, lr_factor)
        self.ask(reason, optimizer, lr_factor)
        return None

    def on_rollback(self, callback: Callable[[Rollback], object]) -> None:
        self._callbacks.append(callback)

    def snapshot_state(self, name: str, save: Any, load: Callable[[Any], object] | None = None) -> None:
        self._state.add(name, save, load)

    def writes_on(self, stream: torch.cuda.Stream) -> None:
        """A stream that writes parameters or state, and is not the current one in a hook."""
        self._copies.writes_on(stream.device, stream)

    def latest(self) -> Generation | None:
        return next(iter(self.snapshots.good()), None)

    def good(self) -> list[tuple[int, float]]:
        """Run step and age in seconds of the good snapshots, the newest first."""
        now = self._clock()
        return [(one.step, now - one.taken_at) for one in self.snapshots.good()]

    def stop(self) -> None:
        self._cadence = Cadence(0, 0.0, 0.0)
        self._asked = None
        self.snapshots.stop()

    # ----------------------------------------------------------------------------------------------

    def _iteration_ends(self, leads: bool) -> Rollback | None:
        self._note_thread()
        if leads:
            self.step = self.step + 1 if self._run_step is None else self._run_step()
        if self._asked is not None and (leads or self._steps_since_asked > self._leader.longest_round):
            return self._answer()
        if not leads or self._asked is not None or not self._cadence.is_on:
            return None
        now = self._clock()
        if self.snapshots.is_pending():
            self.snapshots.settle()
            before, now = now, self._clock()
            self._cadence.also_took(now - before)
        if not self._cadence.is_due(self.step, now):
            return None
        if self._is_shared:
            self.snapshots.refuse("threads", "optimizers step in more than one thread")
            return None
        if self.snapshots.take(self.step, self._batches, overlaps=True):
            self._cadence.taken(self.step, now)
            self._follows_batches = True
        self._cadence.took(self.step, now, self._clock() - now - self.snapshots.allocating_seconds)
        return None

    def _answer(self) -> Rollback | None:
        asked, self._asked = self._asked, None
        assert asked is not None
        try:
            done = self._go_back(asked)
        except Exception as error:  # of any kind: who asked must know that it did not happen
            self.failed_rollbacks += 1
            self.last_failure = str(error)
            logger.warning("no rollback: %s", error)
            if asked.by_policy:
                self.note_failure()
            elif isinstance(error, HalfRestored):
                self._broken = error
            return None
        self._report(done)
        return done

    def _wait_for_place(self, asked: Request) -> None:
        if self._asked is None:
            self._asked, self._steps_since_asked = asked, 0

    def _go_back(self, asked: Request) -> Rollback:
        if self._copies.is_capturing():
            raise GradvaneError("rollback: a CUDA graph is captured; call it between steps")
        if self._is_shared:
            raise GradvaneError("rollback: optimizers step in more than one thread")
        batches = self._batches if self._has_batches else None
        done = self._restorer.restore(asked, self.step, batches)
        self.rollbacks += 1
        self._follows_batches = False
        self._cadence.taken(self.step, self._clock())  # the state is a snapshot's: none is due
        return done

    def _report(self, done: Rollback) -> None:
        self.note_rollback(done)
        for callback in list(self._callbacks):
            try:
                callback(done)
            except Exception:
                logger.warning("an on_rollback callback failed", exc_info=True)
        for text in done.errors:
            logger.warning("rollback: loading the state of %s failed", text)

    def _number(self) -> None:
        if self._run_step is not None:
            self.step = self._run_step()

    def _note_thread(self) -> None:
        here = threading.get_ident()
        self._thread = here if self._thread is None else self._thread
        self._is_shared = self._is_shared or self._thread != here

    def _check_thread(self) -> None:
        if self._thread not in (None, threading.get_ident()):
            raise GradvaneError("snapshots and rollbacks belong to the thread that steps the optimizers; call it there")


