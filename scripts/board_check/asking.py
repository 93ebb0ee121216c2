"""Queries over HTTP, with what a dashboard would make of the answers."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from board_check.boards import Target
from board_check.expansion import Window, expanded


@dataclass(frozen=True)
class Series:
    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def last(self) -> float:
        return self.points[-1][1]

    def at(self, when: float) -> float:
        return dict(self.points)[when]


@dataclass(frozen=True)
class Answer:
    status: int
    series: list[Series]
    said: str
    """warnings and errors"""

    def only(self) -> Series:
        (one,) = self.series
        return one


class Asker:
    """Asks one Prometheus what dashboards ask, with their variables set."""

    def __init__(self, url: str, window: Window, values: dict[str, str]) -> None:
        self.url = url
        self.window = window
        self.values = values

    def _get(self, path: str, parameters: dict[str, str]) -> tuple[int, dict[str, Any]]:
        body = urllib.parse.urlencode(parameters).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", data=body, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def expand(self, query: str) -> str:
        return expanded(query, self.window, self.values)

    def ask(self, query: str, now: bool) -> Answer:
        if now:
            status, body = self._get("query", {"query": self.expand(query), "time": str(self.window.end)})
        else:
            step = self.window.step
            # Grafana moves both ends to whole steps, so that the points stay when the range moves.
            start, end = (int(edge // step) * step for edge in (self.window.start, self.window.end))
            status, body = self._get("query_range", {"query": self.expand(query), "start": str(start),
                                                     "end": str(end), "step": str(step)})
        said = "; ".join([*body.get("warnings", []), *([body["error"]] if "error" in body else [])])
        found = body.get("data", {}).get("result", [])
        return Answer(status, [series_of(entry) for entry in found], said)

    def ask_target(self, target: Target) -> Answer:
        return self.ask(target.expr, target.now)

    def label_values(self, query: str) -> list[str]:
        """What a variable `label_values(selector, label)` offers."""
        match = re.fullmatch(r"label_values\((.+), *(\w+)\)", query)
        assert match, query
        body = urllib.parse.urlencode({"match[]": self.expand(match[1]), "start": self.window.start,
                                       "end": self.window.end})
        with urllib.request.urlopen(f"{self.url}/api/v1/label/{match[2]}/values?{body}", timeout=60) as answer:
            found: list[str] = json.load(answer)["data"]
        return found


def series_of(entry: dict[str, Any]) -> Series:
    points = entry["values"] if "values" in entry else [entry["value"]]
    return Series(entry["metric"], [(float(when), float(value)) for when, value in points])
