"""What the agent reports of a step and of an incident, as typed objects. Absent (None) means not measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gradvane import _native

Site = Literal["loss", "grad", "weight"]
Kind = Literal["nan", "pos_inf", "neg_inf"]
ReadAt = Literal["clip", "scaler", "optimizer", "backward"]
Skipped = Literal["amp_overflow", "loop", "governor"]
BeganIn = Literal["forward", "backward", "update"]
TracedAt = Literal["module", "weight", "input", "loss"]
State = Literal["starting", "running", "stalled", "finished", "failed"]


@dataclass(frozen=True)
class Blame:
    """The first non-finite element of a step."""

    site: Site
    kind: Kind | None
    """None in an incident's order, if the record of that step was lost"""
    param: str | None
    """name of the parameter; None for the loss"""
    element: int
    """row-major linear index"""


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step."""

    step: int
    """of its optimizer, from 1"""
    run_step: int
    """of the run: counts those of the optimizer that stepped first, and goes on with the next when that is gone"""
    micro_steps: int
    """backward passes that went into it"""
    read_at: ReadAt | None
    """where the gradients were read; None: they were not"""
    skipped: Skipped | None
    """why the weights were left as they were; None: they were not"""
    loss: float | None
    grad_norm: float | None
    """L2 over finite elements, before clipping, unscaled; None where no element was finite"""
    grad_norm_at_step: float | None
    """after clipping"""
    clip_coefficient: float | None
    loss_scale: float | None
    """of a gradient scaler"""
    learning_rates: tuple[float | None, ...]
    """by param group; None where it is a tensor on a device"""
    nan: int
    """elements of the gradients, as are the next two"""
    pos_inf: int
    neg_inf: int
    blame: Blame | None


@dataclass(frozen=True)
class Appearance:
    """Something that became non-finite within an incident."""

    run_step: int
    """of the read that found it"""
    blame: Blame
    last_finite: int | None
    """run step of the read before, which was finite: it became bad between the two; None where there was none"""


@dataclass(frozen=True)
class TracedModule:
    """The first thing that was not finite in a step that was watched for it."""

    name: str
    """of the module, dotted; empty for the model itself, and for a loss that no module made"""
    type: str
    at: TracedAt
    """module, its output was bad, or in the backward pass the gradient it sent on; weight, one of its own was bad
    before; input, what it was given was, and no module had made it; loss, it came of the loss"""
    is_backward: bool
    micro_step: int
    """backward pass of the step, from 1"""
    run_step: int

    def sentence(self) -> str:
        name = f"{self.name} ({self.type})" if self.name else f"the model ({self.type})"
        what = {
            ("module", False): f"in the output of {name}",
            ("module", True): f"in the backward pass of {name}",
            ("weight", False): f"in a weight of {name}, bad before the step",
            ("input", False): f"in the input of {name}, which no module had made",
            ("loss", False): "in the loss, which was made of finite outputs",
            ("loss", True): "in the gradient that the loss sent back",
        }[self.at, self.is_backward]
        return f"step {self.run_step}, micro-step {self.micro_step}: the first non-finite value was {what}"


@dataclass(frozen=True)
class Incident:
    """One thing that went wrong, once: opened by its first bad step, closed when it clears."""

    id: int
    kind: str
    """a class of incidents, such as nonfinite_grad: docs/detectors.md lists them"""
    rank: int
    first_step: int
    last_step: int
    """the latest bad one"""
    steps: int
    """bad ones so far"""
    opened_at: float
    """seconds since the epoch"""
    closed_at: float | None
    reopened: int
    """times it came back soon after it had cleared"""
    blame: Blame | None
    order: tuple[Appearance, ...]
    """what became non-finite, the first one first"""
    began_in: BeganIn | None
    """where in the step that was; None where it is not known"""
    micro_step: int | None
    """of the first bad step, from 1, where it can be told"""
    module: str | None
    """the first module of a watched step whose output or gradient was not finite; None: no such, or not watched"""
    evidence: str
    """one sentence"""
    last_good_step: int | None
    """the latest run step before it that left the training's state good, as far as it was read"""
    last_good_checkpoint: int | None
    """run step of the latest checkpoint that was seen, not after last_good_step"""


@dataclass(frozen=True)
class Status:
    """The run as it is now."""

    state: State
    reason: str | None
    """why it failed or stalled"""
    steps: int
    nonfinite_steps: int
    steps_per_second: float | None
    """a mean over some ten steps; None before the second step"""
    latest: StepRecord | None


_MAY_BE_EMPTY = ("began_in", "kind", "module", "param", "reason")
"""texts that are None where the native object has an empty one"""


def blame_of(blame: _native.Blame | None) -> Blame | None:
    return None if blame is None else Blame(**_attributes(Blame, blame))


def step_of(step: _native.StepResult) -> StepRecord:
    values = _attributes(StepRecord, step)
    for key in ("read_at", "skipped"):
        values[key] = None if values[key] == "none" else values[key]
    rates = tuple(None if math.isnan(rate) else rate for rate in step.learning_rates)
    return StepRecord(**{**values, "blame": blame_of(step.blame), "learning_rates": rates})


def status_of(status: _native.Status) -> Status:
    latest = step_of(status.latest) if status.latest.step > 0 else None
    values = _attributes(Status, status)
    return Status(**{**values, "latest": latest, "steps_per_second": status.steps_per_second or None})


def incident_of(incident: _native.Incident) -> Incident:
    values = _attributes(Incident, incident)
    order = tuple(_appearance_of(seen) for seen in incident.order)
    return Incident(**{**values, "blame": blame_of(incident.blame), "order": order})


def _appearance_of(seen: _native.Appearance) -> Appearance:
    return Appearance(**{**_attributes(Appearance, seen), "blame": blame_of(seen.blame)})


def _attributes(record: type, native: object) -> dict[str, Any]:
    """The native object has an attribute for each field of the record, under the same name."""
    values = {field.name: getattr(native, field.name) for field in fields(record)}
    return {name: None if name in _MAY_BE_EMPTY and value == "" else value for name, value in values.items()}
