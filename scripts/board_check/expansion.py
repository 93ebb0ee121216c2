"""What Grafana makes of the variables in a query of its Prometheus data source.

Written after Grafana's documentation of variable formats and of $__rate_interval; Grafana itself was not at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALL = "$__all"
MOST_POINTS = 11_000
"""of a range query: what Prometheus answers"""


@dataclass(frozen=True)
class Window:
    """The range of a dashboard, in seconds, and what decides how fine its points are."""

    start: float
    end: float
    scrape: int = 15
    """timeInterval of the data source"""
    points: int = 1000
    """a panel asks for about as many as it has pixels"""

    @property
    def step(self) -> int:
        """$__interval, in whole seconds. Not finer than the scrape interval, nor more points than are answered."""
        fine = max((self.end - self.start) / self.points, (self.end - self.start) / MOST_POINTS)
        return max(self.scrape, round(fine))

    @property
    def rate_interval(self) -> int:
        return max(4 * self.scrape, self.step + self.scrape)


def escaped(value: str) -> str:
    """For a regular expression within double quotes."""
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\" * 4))


def chosen(value: str | Sequence[str], all_value: str = ".+", is_multi: bool = True) -> str:
    """One value as it stands; several as a regular expression; all of them as the variable says."""
    if isinstance(value, str) and not is_multi:
        return value.replace("\\", "\\\\").replace('"', '\\"')
    values = [value] if isinstance(value, str) else list(value)
    if ALL in values:
        return all_value
    return escaped(values[0]) if len(values) == 1 else "(" + "|".join(map(escaped, values)) + ")"


def expanded(query: str, window: Window, values: Mapping[str, str]) -> str:
    """
    `values`: what each variable of the dashboard stands for, as `chosen` gives it. $1 and the like are label_replace's:
    Grafana leaves alone what is no variable of its own.
    """
    length = round(window.end - window.start)
    known = {"__rate_interval": f"{window.rate_interval}s", "__interval": f"{window.step}s", "__range": f"{length}s",
             "__range_s": str(length), **values}

    def put(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in known:
            raise KeyError(f"there is no variable {name}: {query}")
        return known[name]

    return re.sub(r"\$\{(\w+)\}|\$([A-Za-z_]\w*)", put, query)
