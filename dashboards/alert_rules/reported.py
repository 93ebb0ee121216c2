"""Alerts on what a run reports itself. Name, severity and words come from the agent's own table."""

from __future__ import annotations

from dataclasses import dataclass

from alert_rules.expressions import WHO
from alert_rules.rule import Alert
from alert_rules.windows import Windows


@dataclass(frozen=True)
class AlertRow:
    """A row of record/alert_rules.hpp."""

    name: str
    severity: str
    group: str
    summary: str
    description: str
    """the first sentence, after the run and the number of its ranks"""
    keeps_firing: bool
    classes: tuple[str, ...]
    """of incidents that raise it"""

    def alert(self, windows: Windows, expr: str, *facts: str) -> Alert:
        return Alert(self.name, self.severity, self.summary, expr, (f"{WHO} {self.description}", *facts),
                     keep_firing=windows.keep_firing if self.keeps_firing else "")
