"""The dashboards' files, as their reader needs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Target:
    """One query of one panel."""

    board: str
    """its UID"""
    panel: str
    """its title"""
    kind: str
    """its type"""
    ref: str
    expr: str
    legend: str
    now: bool

    @property
    def name(self) -> str:
        return f"{self.board}: {self.panel} [{self.ref}]"


def load(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels but the rows themselves, those of collapsed rows too."""
    found = []
    for panel in board["panels"]:
        if panel["type"] == "row":
            found += panel.get("panels", [])
        else:
            found.append(panel)
    return found


def targets(board: dict[str, Any]) -> Iterator[Target]:
    for panel in panels(board):
        for target in panel["targets"]:
            yield Target(board["uid"], panel["title"], panel["type"], target["refId"], target["expr"],
                         target.get("legendFormat", ""), bool(target.get("instant")))


def variables(board: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = board["templating"]["list"]
    return found


def events(board: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = board["annotations"].get("list", [])
    return found
