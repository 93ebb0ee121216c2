"""Courses of values over time. Times are seconds since the run began."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Course = Callable[[float], float | None]
"""None: there is no sample"""


@dataclass(frozen=True)
class Known:
    """One series of the known run."""

    metric: str
    labels: dict[str, str]
    course: Course


def flat(value: float) -> Course:
    return lambda t: value


def noise(t: float, seed: float) -> float:
    """From -1 to 1; the same at every run."""
    value = math.sin(t * 12.9898 + seed * 78.233) * 43758.5453
    return 2 * (value - math.floor(value)) - 1


def steady(rate: float) -> Course:
    """A counter that grows by so much a second."""
    return lambda t: rate * t


def bent(rate: float, at: float, then: float) -> Course:
    """A counter that grows by `rate` a second, and by `then` from `at` on."""
    return lambda t: rate * min(t, at) + then * max(0.0, t - at)


def between(start: float, end: float, rate: float) -> Course:
    """A counter that grows by so much a second from `start` to `end`."""
    return lambda t: rate * max(0.0, min(t, end) - start)


def stairs(*edges: tuple[float, float]) -> Course:
    """(from when, value) one after the other; no sample before the first."""
    def value(t: float) -> float | None:
        now: float | None = None
        for when, level in edges:
            if t >= when:
                now = level
        return now
    return value


def counted(*times: float) -> Course:
    """A counter from 0 that grows by 1 at each of these times."""
    return lambda t: float(sum(t >= when for when in times))


def while_between(start: float, end: float, inside: float = 1.0, outside: float = 0.0) -> Course:
    """A gauge that has one value from `start` to `end`, and another one else."""
    return lambda t: inside if start <= t < end else outside


def less(course: Course, other: Course) -> Course:
    return lambda t: (course(t) or 0.0) - (other(t) or 0.0)


def held(course: Course, start: float, end: float) -> Course:
    """A gauge that keeps its last value from `start` to `end`, as one does while there is no finite one."""
    return lambda t: course(start if start <= t < end else t)


def only(course: Course, start: float, end: float = math.inf) -> Course:
    """No samples outside."""
    return lambda t: course(t) if start <= t < end else None
