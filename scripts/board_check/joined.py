"""What Grafana's transformations make of the two queries of an XY chart: a curve for each value of a label.

`merge` puts the rows of the same time and labels together, `partitionByValues` splits them by the label. Written after
Grafana's source; Grafana itself was not at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from board_check.asking import Asker


@dataclass
class Curve:
    points: list[tuple[float, float]] = field(default_factory=list)
    """(x, y) in the order of time"""
    alone: int = 0
    """rows that have x or y only"""


def curves(asker: Asker, panel: dict[str, Any]) -> dict[str, Curve]:
    (label,) = panel["transformations"][-1]["options"]["fields"]
    rows: dict[tuple[float, str], dict[str, float]] = {}
    for target in panel["targets"]:
        for series in asker.ask(target["expr"], now=False).series:
            for when, value in series.points:
                rows.setdefault((when, series.labels[label]), {})[target["refId"]] = value
    found: dict[str, Curve] = {}
    lone: dict[str, int] = {}
    for (_, name), row in sorted(rows.items()):
        if {"A", "B"} <= row.keys():
            found.setdefault(name, Curve()).points.append((row["A"], row["B"]))
        else:
            lone[name] = lone.get(name, 0) + 1
    for name, count in lone.items():
        if name in found:
            found[name].alone = count
    return found
