"""How far the rules look back, and what else a site may choose."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Windows:
    """Times of the rules, as Prometheus writes them. The defaults are what is shipped."""

    event: str = "5m"
    """an event counts for this long; at least four scrape intervals"""
    memory: str = "1h"
    """a counter that was not scraped for less than this is compared with what it was before"""
    keep_firing: str = "10m"
    """an event's alert stays this long after its reason is gone, so that it does not flap"""
    told: str = "15m"
    """a description tells what a process that is gone said within this; as long as its alert may last"""
    down_for: str = "1m"
    """a target is down for this long before anybody is told; at least two scrape intervals"""
    down_memory: str = "12h"
    """for so long a target is known to be that of a run"""
    failed: str = "10m"
    """a failed run is told of for this long, though its series are gone"""
    rate: str = "5m"
    """rates of recording rules, and of the rule that compares ranks"""
    straggler_for: str = "10m"
    absent_for: str = "5m"
    straggler_share: float = 0.25
    """a rank that adds more than this share of a typical step to every step is a straggler"""


PRODUCTION = Windows()

# For a drill that scrapes and evaluates every second.
SHORT = Windows(event="8s", memory="10m", keep_firing="4s", told="15s", down_for="2s", down_memory="10m", failed="8s",
                rate="10s", straggler_for="5s", absent_for="5s")


def windows_of(name: str) -> Windows:
    """`production`, `short`, or the path of a JSON file with any of the fields."""
    if name == "production":
        return PRODUCTION
    if name == "short":
        return SHORT
    values = json.loads(Path(name).read_text(encoding="utf-8"))
    unknown = set(values) - {field.name for field in fields(Windows)}
    if unknown:
        raise ValueError(f"{name}: no such window: {', '.join(sorted(unknown))}")
    return Windows(**values)


@dataclass(frozen=True)
class Settings:
    """What a site may choose besides the times."""

    windows: Windows = PRODUCTION
    runbook_base: str = "docs/runbooks"
    dashboard_base: str = "http://localhost:3000"
    jobs: str = ""
    """regular expression of jobs whose targets are expected to be up even if no run was ever seen there"""
