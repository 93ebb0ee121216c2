"""What a script calls: attach(), and the functions that speak to the live agent without holding it."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Literal, get_args

from gradvane import _agent, _lines
from gradvane._log import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
    from typing_extensions import Unpack

    from gradvane._agent import Agent
    from gradvane.options import Options

Phase = Literal["data", "forward", "backward", "optimizer", "evaluation", "checkpoint"]

_lock = threading.RLock()


def attach(
    model: Module | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    **options: Unpack[Options],
) -> Agent:
    """Watches a training run from now on, and returns the agent that does.

    With a model and its optimizer (or several), their steps are watched. With a model alone, whatever
    optimizer steps its parameters; where none does, every backward pass is a step. With neither, whatever
    trains in this process, found when it begins to.

    Options are those of docs/configuration.md; environment variables outdo them. Where an agent is live
    already and no options are given, it watches this model too; with other options, it is detached, with a
    warning, and a new one starts.

    A wrapped optimizer, as Accelerate, Lightning and others make it, may be passed as it is: the optimizers inside it
    are watched.

    Raises GradvaneError where the agent cannot start, ValueError for an option that does not exist or is not
    allowed and for an optimizer that has nothing to do with the model, and TypeError where the model is no module,
    the optimizer has no param_groups, or its steps cannot be seen.
    """
    with _lock:
        agent = _agent.live()
        if agent is not None and options and not agent.has_options({**options}):
            logger.warning("attach() with other options: the run %s ends here, and another one begins", agent.run)
            agent.detach()
            agent = None
        if agent is not None:
            agent.watch(model, optimizer)
            return agent
        agent = _agent.Agent(**options)
        try:
            agent.watch(model, optimizer)
        except BaseException:
            agent.detach()
            raise
        _lines.begins(agent)
        return agent


def log(
    metrics: Mapping[str, Tensor | float] | None = None,
    /,
    *,
    loss: Tensor | float | None = None,
    **scalars: Tensor | float,
) -> None:
    """Reports the loss of the step in progress, and custom metrics for it: log(accuracy=x), log({"train/accuracy": x}).

    Right behind the optimizer's step they are those of the step that was taken; docs/integrations.md says until when.
    Tensors of one element are read where they are, without waiting. A loss that is passed overrides what backward() shows;
    several of one step are averaged. Metrics become gradvane_user_metric{name}; at most 256 names, and a warning names the
    first one more. `step`, which other loggers take, is accepted and ignored. Without an agent it does nothing.
    """
    agent = _agent.live()
    if agent is not None:
        agent.log(metrics, loss=loss, **scalars)


def count(*, tokens: int = 0, samples: int = 0) -> None:
    """Work done since the last call, for gradvane_tokens_total and gradvane_samples_total."""
    agent = _agent.live()
    if agent is not None:
        agent.count(tokens=tokens, samples=samples)


def phase(name: Phase) -> contextlib.AbstractContextManager[None]:
    """Books the time of a block, in seconds of wall-clock time on the host, as a phase of the step in progress.

        with gradvane.phase("checkpoint"):
            save_to_bucket(model)

    Phases may be nested, and the inner one has the time. Each thread has its own. In "evaluation" and "checkpoint" no
    step is expected: the run does not count as stalled, for at most `stall_pause_seconds`, and host syncs belong to
    no step. Without an agent and in compiled code it does nothing. docs/python.md says which phases are seen without
    it.

    Raises ValueError where there is no phase called `name`; what the block raises goes through.
    """
    if name not in get_args(Phase):
        raise ValueError(f"there is no phase called {name!r}; there are: {', '.join(get_args(Phase))}")
    return _in_phase(name)


@contextlib.contextmanager
def _in_phase(name: str) -> Iterator[None]:
    agent = _agent.live()
    if agent is None or sys.modules["torch"].compiler.is_compiling():
        yield
        return
    phases = agent._watcher.phases
    span = phases.enter(name)
    try:
        yield
    finally:
        phases.leave(name, span)


def finish() -> None:
    """Ends the run as finished, as Agent.detach() does. Without an agent it does nothing."""
    with _lock:
        agent = _agent.live()
        if agent is not None:
            agent.detach()


def is_state_good() -> bool:
    """Whether what is trained may be saved over the latest good checkpoint: as Agent.is_state_good(). True without an
    agent, since nothing is known then."""
    agent = _agent.live()
    return agent is None or agent.is_state_good()


def trace_nonfinite() -> None:
    """Watches one step for the module whose output, or whose gradient, is the first to be NaN or infinite.

    Call it between steps, and it is the next one; within a step, what is left of it; from another thread,
    the first whole one. What it finds is logged, joins the incident that is open, and is Agent.traced().
    docs/trace-nonfinite.md says what that costs.
    """
    agent = _agent.live()
    if agent is not None:
        agent.trace_nonfinite()


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """torch.nn.utils.clip_grad_norm_ with the norm that the agent reads anyway.

    Clips the gradients of `parameters` to a total norm of `max_norm` in place. Returns the norm before, 0-dim,
    in the type and on the device that torch returns it, NaN or Inf where a gradient is, without a host sync.
    The arguments are torch's, and so are the errors.

    Torch's own function does it, bit for bit, without an agent, where `parameters` are not those of one watched
    optimizer, where a parameter is sharded (FSDP2, DTensor: the norm is that of all shards), and with any
    argument behind `max_norm` other than the default.
    """
    import torch

    agent = _agent.live()
    is_default = norm_type == 2.0 and not error_if_nonfinite and foreach is None
    if agent is not None and is_default:
        params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        norm = agent._clip(params, float(max_norm))
        if norm is not None:
            return norm
        if params:  # a generator that is empty gets torch's warning
            parameters = params
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
