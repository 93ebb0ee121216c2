"""What each alert must do, in time: when it fires, what it says, when it is over.

Everything expected is written here by hand; nothing is taken from the rules. Times are minutes. The shipped
windows are 5 minutes for an event and 10 minutes more until its alert ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from timeline import LENGTH, Series, during, ended, healthy, name

OBLIGATORY = ("zero_initialised", "late_series", "healthy", "clears", "counter_restart", "nan_gauge", "stale_end",
              "many_ranks")


@dataclass(frozen=True)
class Check:
    minute: float
    ranks: tuple[int, ...] = ()
    """for which it is true: one alert for all of them together"""
    says: str = ""
    """description, with {ranks} for their number and {first} for the first of them"""


@dataclass(frozen=True)
class Case:
    name: str
    series: Series
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Spec:
    """One alert: what identifies it, and its cases."""

    alert: str
    page: str
    severity: str
    summary: str
    cases: tuple[Case, ...] = field(default=())


def ranks_of(count: int) -> Series:
    together: Series = {}
    for rank in range(count):
        together |= healthy(rank)
    return together


@dataclass(frozen=True)
class EventSpec:
    """An alert on a counter that rises, be it of incidents or not.

    `counters`: series (without target labels) that show the event. `gauge`: true while it lasts, if there
    is one. `info`: labels of the incident.
    """

    alert: str
    page: str
    severity: str
    summary: str
    says: str
    """with {ranks}, {first}, and {count} for the raw counter"""
    counters: tuple[tuple[str, dict[str, str]], ...]
    gauge: dict[str, str] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)

    def faulty(self, rank: int, *parts: tuple[float, object], lasting: tuple[tuple[float, object], ...] = ()) -> Series:
        """A process whose counters go through `parts`, and whose gauge through `lasting`."""
        series = healthy(rank)
        for metric, labels in self.counters:
            series[name(metric, rank, **labels)] = during(*parts)
        if self.gauge and lasting:
            series[name("gradvane_incidents_open", rank, **self.gauge)] = during(*lasting)
        if self.info:
            known = tuple((minutes, 1 if value not in (None, 0, "stale") else None) for minutes, value in parts)
            labels = {**dict.fromkeys(("step", "site", "kind", "param", "element", "group", "began_in", "module"), ""),
                      **self.info}
            series[name("gradvane_incident_info", rank, **labels)] = during(*known)
        return series

    def fires(self, minute: float, ranks: tuple[int, ...] = (0,), is_gone: bool = False) -> Check:
        text = re.sub(r"\[([^]]*)\]", "" if is_gone else r"\1", self.says)
        later = int(minute >= 30)
        for key, value in (("count", 1), ("skipped", 42 + later), ("overflow", 40 + later)):
            text = text.replace("{" + key + "}", str(value))
        return Check(minute, ranks, text)

    def spec(self) -> Spec:
        for_five = ((10.0, 0), (5.0, 1), (45.0, 0))
        once = ((10.0, 0), (50.0, 1))
        many = ranks_of(4)
        for rank in (1, 3):
            many |= self.faulty(rank, *once)
        cases = (
            Case("zero_initialised", self.faulty(0, *once, lasting=for_five),
                 (Check(9.5), self.fires(10.5), self.fires(14))),
            # Neither in the gauge: it opened and closed between two scrapes.
            Case("late_series", self.faulty(0, (10, None), (50, 1), lasting=((10.0, None), (50.0, 0))),
                 (Check(9.5), self.fires(10.5), self.fires(14), Check(31), Check(59))),
            Case("healthy", healthy(), (Check(5), Check(20), Check(50))),
            Case("clears", self.faulty(0, *once, lasting=for_five), (self.fires(16), Check(31), Check(59))),
            Case("counter_restart", self.faulty(0, (10, 0), (20, 1), (10, 0), (20, 1)),
                 (self.fires(12), Check(29), Check(30.5), Check(34), Check(39.5), self.fires(40.5))),
            Case("nan_gauge", self.faulty(0, (30, 0), (30, 1), lasting=((LENGTH, "NaN"),)),
                 (Check(5), Check(29.5), self.fires(30.5), Check(50))),
            Case("stale_end", ended(self.faulty(0, *once, lasting=for_five), 12),
                 (Check(9.5), self.fires(13, is_gone=True), Check(31))),
            Case("many_ranks", many, (Check(9.5), self.fires(10.5, (1, 3)), Check(31))),
            # It comes back right after the restart, and with it the count that was there before.
            Case("restart_and_again", self.faulty(0, (10, 0), (25, 1), (1, 0), (24, 1)),
                 (self.fires(12), Check(34.5), Check(35.5), self.fires(36.5), Check(55))),
            # A few scrapes fail long after: nothing new happened.
            Case("scrapes_failed", self.faulty(0, (10, 0), (25, 1), (2, "stale"), (23, 1)),
                 (self.fires(12), Check(31), *(Check(minute) for minute in (37, 38, 40, 42.5, 46, 58)))),
            # It happened while nothing was scraped.
            Case("while_not_scraped", self.faulty(0, (20, 0), (10, "stale"), (30, 1)),
                 (Check(19), Check(29), self.fires(30.5), Check(59))),
            # It was down for long, came back, and had one before anybody looked.
            Case("restarted_while_not_scraped", self.faulty(0, (5, 0), (5, 3), (20, "stale"), (30, 1)),
                 (Check(4.5), Check(29), self.fires(30.5), Check(59))),
        )
        return Spec(self.alert, self.page, self.severity, self.summary, cases)


def expected(spec: Spec, check: Check) -> list[dict[str, object]]:
    """The alerts as promtool compares them, without the link to the runbook."""
    if not check.ranks:
        return []
    count = len(check.ranks)
    ranks = "1 rank" if count == 1 else f"{count} ranks"
    return [{
        "exp_labels": {"job": "gradvane", "run": "gpt", "severity": spec.severity, "component": "gradvane"},
        "exp_annotations": {
            "summary": spec.summary,
            "description": check.says.replace("{ranks}", ranks).replace("{first}", str(min(check.ranks))),
            "dashboard_url": "http://localhost:3000/d/gradvane-overview/gradvane-overview"
                             "?var-job=gradvane&var-run=gpt",
        },
    }]
