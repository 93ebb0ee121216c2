"""The agent of a run: its start, what a script may ask of it, and its end with the program."""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any

from gradvane import _lines
from gradvane._errors import GradvaneError, is_good_exit, reason_of
from gradvane._incidents import Incidents
from gradvane._log import logger
from gradvane._process import children, fork_warning, threads
from gradvane._records import Incident, Status, StepRecord, TracedModule, incident_of, status_of, step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
    from typing_extensions import Unpack

    from gradvane._governor.record import Rollback
    from gradvane._governor.restoring import OptimizerPolicy
    from gradvane.options import Options

command_line: list[str] = []
"""key=value of `gradvane run`: stronger than anything that the script says."""
default_run: str | None = None
failure: str | None = None
"""why the program is about to end, where somebody knows"""
on_nothing: Callable[[], object] | None = None
"""called at the end of a program in which no agent ever started"""
_has_started = False
_ends_at_exit = False
_live: Agent | None = None


class Agent:
    """One run. Made by attach(); at most one is live in a process.

    Methods may be called from the thread that trains; url, status() and last_step from any.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        global _live, _has_started
        from gradvane._loading import native

        module = native()  # before anything of ours that imports torch: it says so where there is none
        from gradvane._custom_metrics import CustomMetrics
        from gradvane._governor import policy
        from gradvane._naming import Names
        from gradvane._ranks import identity
        from gradvane._watch.watcher import Watcher
        from gradvane.options import as_pairs, as_texts

        self._options = as_texts(options)
        lacks_run_id = module.lacks_run_id(as_pairs(self._options), command_line)
        pairs = as_pairs({**identity.of_group(lacks_run_id), **self._options})
        name = default_run or _script_name()
        # First of all, since it is the one thing here that cannot be had where threads are limited: nothing else
        # has begun by then.
        begins: queue.SimpleQueue[bool] = queue.SimpleQueue()

        def tell() -> None:
            if begins.get():
                self._tell()

        self._teller = threading.Thread(target=tell, name="gradvane-python", daemon=True)
        try:
            self._signals = threads.start(self._teller)
        except RuntimeError as error:
            raise GradvaneError(
                f"no thread could be started: {error}; allow more processes (ulimit -u), or train without"
            ) from None
        self._native: Any = None
        try:
            self._native = module.Agent(name, pairs, command_line)
            self._watcher = Watcher(self._native, Names())
        except BaseException as error:
            begins.put(False)
            self._teller.join()
            if self._native is not None:
                self._native.stop(False)
            if isinstance(error, RuntimeError):
                raise GradvaneError(str(error)) from None
            raise
        for package in ("torch", "gradvane"):  # a host sync's line is looked for outside these
            self._native.pass_over(os.path.dirname(os.path.abspath(sys.modules[package].__file__ or "")))
        self.run = str(self._native.run()) or name
        self.is_renamed = bool(self._native.is_renamed())
        """a run with the default name is live on this machine, so this one has its run_id in its name"""
        self._custom_metrics = CustomMetrics(self._native, self._watcher)
        self._incidents = Incidents()
        self.recording = ""
        """path of the latest one of an incident"""
        policy.connect(self._native, self._watcher, self._incident_of_stop)
        self._callbacks: list[Callable[[Incident], object]] = []
        begins.put(True)
        _live, _has_started = self, True
        end_at_exit()

    def watch(self, model: Module | None, optimizer: Optimizer | Sequence[Optimizer] | None) -> None:
        """As attach()."""
        from gradvane import _finding
        from gradvane._watch import hooks

        self._watcher.watch(_finding.checked_model(model), _finding.listed_optimizers(optimizer))
        hooks.install(self._watcher)
        self._watcher.tracer.starts()

    def log(
        self,
        metrics: Mapping[str, Tensor | float] | None = None,
        /,
        *,
        loss: Tensor | float | None = None,
        **scalars: Tensor | float,
    ) -> None:
        """As gradvane.log()."""
        self._custom_metrics.log(metrics, loss, {**scalars})

    def count(self, *, tokens: int = 0, samples: int = 0) -> None:
        """As gradvane.count()."""
        self._custom_metrics.count(tokens=tokens, samples=samples)

    def _clip(self, params: list[Tensor], max_norm: float) -> Tensor | None:
        """Clips `params` by the norm that is read anyway; the norm before, 0-dim. None where torch has to do it."""
        clip = self._watcher.clips.own_clip(params)
        if clip is None:
            return None
        optimizer, just_read = clip
        return self._native.clip_grad_norm(optimizer, max_norm, just_read)

    def trace_nonfinite(self) -> None:
        """As gradvane.trace_nonfinite()."""
        self._watcher.tracer.ask()

    def traced(self) -> TracedModule | None:
        """What the latest watched step with something non-finite in it showed; None before there was one."""
        return self._watcher.tracer.found

    def grad_norm(self) -> Tensor | None:
        """The total L2 norm of the gradients as they are now, 0-dim fp64 where they lie, without a host
        sync. The first call of a step reads them for the step too; a later one reads them again. None with
        several optimizers, and where the pass cannot read a gradient (several devices, sparse on a device).

        None where parameters are sharded (FSDP2, DTensor) too: their norm takes a collective, which every
        rank has to call. torch.nn.utils.get_total_norm(gradients).full_tensor() is one;
        last_step.grad_norm has the norm of an earlier step without any."""
        only = self._watcher.only()
        return None if only is None else self._native.grad_norm(only)

    @property
    def last_step(self) -> StepRecord | None:
        """The latest step that was measured; None before the first. In immediate mode the one just taken,
        else it may be a few behind."""
        step = self._native.record()
        return step_of(step) if step.step > 0 else None

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The latest 256, the oldest first, each as it was last reported. They come from another thread, a step or
        more after what they report; after flush() they are there within a moment."""
        return self._incidents.all()

    @property
    def last_good_step(self) -> int | None:
        """The latest run step that left the training's state good, as far as steps have been exported; None where none
        is known."""
        return self._native.governor().last_good_step or None

    def is_state_good(self) -> bool:
        """Whether no NaN or infinity has reached the weights and no divergence is open, after all steps so far. Waits
        until they have been exported, which takes a moment; for a device, until it has done them. Weights are read
        every `weight_every` steps, so they may have gone bad since. False also where the steps are not exported within
        five seconds."""
        return self.flush() and bool(self._native.governor().is_state_good)

    @property
    def should_stop(self) -> bool:
        """Whether a policy asks the loop to stop. Only for loops that set raise_at_stop(False)."""
        return bool(self._native.governor().should_stop)

    def _leaves_out_checkpoints(self, ranks: int) -> bool:
        """Whether a trainer on so many ranks should save none now: a policy stops the run, and its state is bad, on one of
        them at least. Each rank sees its own incidents only: without agreement all of them save, since one that saves may
        wait for the others."""
        if not self.should_stop:
            return False
        is_bad = not self.is_state_good()
        return is_bad if ranks <= 1 else bool(self._watcher.agreement.any_rank(is_bad))

    def raise_at_stop(self, raises: bool) -> None:
        """Whether optimizer.step() raises TrainingStopped where a policy stops the run, as it does by default. A
        trainer that can end its loop by itself asks should_stop after each step instead."""
        self._watcher.governing.raises = raises

    def on_incident(self, callback: Callable[[Incident], object]) -> None:
        """Calls `callback` when an incident opens and when it clears, on a thread of the agent's. What it
        raises is logged."""
        self._callbacks.append(callback)

    def snapshot(self) -> bool:
        """Copies the training's state to host memory now, on the thread that trains. False: refused, a log line has
        the reason. docs/governor.md has what the state is."""
        return self._watcher.keeper.snapshot()

    def rollback(self, reason: str = "the script", *, optimizer: OptimizerPolicy = "restore", lr_factor: float = 1.0,
                 when: str = "now") -> Rollback | None:
        """Goes back to the last good snapshot: "now", between two steps, or "after_step", right after the next one, where
        snapshots are taken, so that schedules go on exactly. `optimizer`: restores, resets or keeps its state.
        Raises GradvaneError if there is no snapshot or the training no longer fits it; nothing is changed then."""
        return self._watcher.keeper.go_back(reason, optimizer, lr_factor, when)

    def on_rollback(self, callback: Callable[[Rollback], object]) -> None:
        """Calls `callback` after each rollback, on the thread that trains."""
        self._watcher.keeper.on_rollback(callback)

    def snapshot_state(self, name: str, save: Any, load: Callable[[Any], object] | None = None) -> None:
        """Adds to what snapshots hold: what `save()` returns, for `load` to take back. Or an object with state_dict()
        and load_state_dict(), or a module (an average of weights). Snapshots before it lack it."""
        self._watcher.keeper.snapshot_state(name, save, load)

    def writes_on(self, stream: torch.cuda.Stream) -> None:
        """A stream that writes weights or state and is never the current one in a step: copies are ordered with it."""
        self._watcher.keeper.writes_on(stream)

    @property
    def url(self) -> str:
        """http://address:port of the page; empty without an endpoint."""
        return str(self._native.url())

    def status(self) -> Status:
        """How the run is now."""
        return status_of(self._native.status())

    def flush(self, seconds: float = 5.0) -> bool:
        """Waits until every step and rollback so far is known to the exporters; False where the time ran out."""
        return bool(self._native.flush(float(seconds)))

    def detach(self) -> None:
        """Ends the run as finished; the process is as if Gradvane had never been there. May be repeated.

        Does not wait for a scrape: that is for runs that are live at the end of the program. Where a file or a
        callback hangs it returns after some 10 seconds, and the thread that waits for it stays behind.
        """
        self._end(lambda: self._native.stop(False))

    def fail(self, reason: str) -> None:
        """Ends the run as failed. Waits as detach() does."""
        self._end(lambda: self._native.fail(reason, False))

    def __repr__(self) -> str:
        status, where = self.status(), f", url={self.url!r}" if self.url else ""
        return f"<gradvane.Agent state={status.state!r}, steps={status.steps}{where}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a link to the page, and the run as it is now."""
        from html import escape  # here: a program may have an html.py of its own

        status = self.status()
        parts = [status.state, f"{status.steps} step{'' if status.steps == 1 else 's'}"]
        if status.latest is not None and status.latest.loss is not None:
            parts.append(f"loss {status.latest.loss:.4g}")
        link = f'<a href="{escape(self.url)}">{escape(self.url)}</a>' if self.url else "no endpoint"
        return f"<p>Gradvane: {link}; {', '.join(parts)}</p>"

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None or (error is not None and is_good_exit(error)):
            self.detach()
        else:
            self.fail(kind.__name__ if error is None else reason_of(error))

    def has_options(self, options: dict[str, Any]) -> bool:
        """Whether it was started with these."""
        from gradvane.options import as_texts

        return as_texts(options) == self._options

    def _end(self, end: Callable[[], object]) -> None:
        global _live
        from gradvane._watch import hooks

        try:
            hooks.uninstall(self._watcher)
            self._watcher.tracer.stop()
            self._watcher.stop()
        finally:  # Ctrl-C while these wait
            try:
                end()
            finally:
                if _live is self:
                    _live = None
        if threading.current_thread() is not self._teller:
            self._teller.join(timeout=5.0)  # callbacks may take a while
        self._say_lines()
        _lines.ended(self)

    def _tell(self) -> None:
        """The thread that hands on incidents and lines."""
        while True:
            opened, is_over = self._native.next_event(3600.0)
            self._say_lines()
            if opened is not None:
                incident = incident_of(opened)
                self._incidents.add(incident)
                self._watcher.tracer.incident(incident)
                for callback in list(self._callbacks):
                    try:
                        with threads.signals(self._signals):  # children that it starts inherit them
                            callback(incident)
                    except BaseException:  # SystemExit would end this thread alone
                        logger.warning("an on_incident callback failed", exc_info=True)
            if is_over:
                return

    def _incident_of_stop(self) -> Incident | None:
        self.flush()
        return self._incidents.of_policy(seconds=1.0)

    def _say_lines(self) -> None:
        for line in self._native.take_lines():
            line = line.removeprefix("gradvane: ")
            self.recording = line.removeprefix("recording: ") if line.startswith("recording: ") else self.recording
            logger.info(line)


def live() -> Agent | None:
    return _live


def end_at_exit() -> None:
    """Sees to it that a run which is live at the end of the program ends with it."""
    global _ends_at_exit
    if not _ends_at_exit:
        _ends_at_exit = True
        atexit.register(_at_exit)
    children.at_end_of_child(_at_exit)


def _at_exit() -> None:
    if _live is not None:
        _end_with_program(_live)
    elif on_nothing is not None and not _has_started:
        on_nothing()
    if _has_started:
        from gradvane._loading import native

        native().end_host_syncs()
    if not children.is_child():  # a child leaves by os._exit
        threads.join_left()


def _end_with_program(agent: Agent) -> None:
    from gradvane._loading import native

    native().note_process_ends()
    why = failure
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)  # the first one ends a child of multiprocessing
    if error is not None and is_good_exit(error):
        error = None
    if why is None and error is not None and not hasattr(sys, "ps1"):  # where a person types, an error is not the end
        why = reason_of(error)
    try:
        agent._end(lambda: agent._native.stop(True) if why is None else agent._native.fail(why, True))
    except KeyboardInterrupt:  # meant for our wait: the program itself has ended already
        pass


def _script_name() -> str:
    """What the run is called where nobody says: the script's name without its suffix."""
    name = os.path.basename(sys.argv[0] if sys.argv else "")
    return os.path.splitext(name)[0] if name not in ("", "-c", "-m") else "python"


def _forget_in_child() -> None:
    global _live
    if _live is None:
        return
    from gradvane._watch import hooks

    hooks.forget_in_child()
    _live._watcher.tracer.stop()
    _live = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
fork_warning.leave_out(lambda: _live is not None)
