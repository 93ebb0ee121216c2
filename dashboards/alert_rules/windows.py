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
    missing_for: str = "5m"
    """a rank may be missing this long: a restart takes time, and ranks do not end at once"""
    vanished: str = "1h"
    """a run that is gone is remembered this long"""
    vanished_for: str = "5m"
    not_started_for: str = "30m"
    snapshots: str = "30m"
    """in which at least one snapshot has to be committed, if some were due"""
    snapshots_for: str = "5m"
    snapshots_late: int = 10
    """a snapshot that is this many times as old as they become in this run is too old"""
    snapshots_known: int = 20
    """from so many on it is known how old they become"""
    starvation_for: str = "10m"
    throughput_for: str = "10m"
    throughput_memory: str = "1h"
    """the throughput is compared with the median of this time"""
    memory_for: str = "10m"
    memory_retries: str = "5m"
    """allocations that were retried within this time count"""
    memory_growth: str = "5m"
    """the peak of the device memory grew within this time; as a run begins it does so for a while in any case"""
    diverged_for: str = "10m"
    diverged_memory: str = "1d"
    """ranks that had the same weights within this time are replicas"""
    straggler_share: float = 0.25
    """a rank that adds more than this share of a typical step to every step is a straggler"""
    starvation_share: float = 0.2
    """of the step time in the data phase"""
    throughput_share: float = 0.2
    """so far below its median is a drop"""
    memory_share: float = 0.97
    """of the device memory that tensors may hold"""
    diverged_share: float = 0.01
    """weight norms of replicas that are so far apart are those of different models"""
    same_share: float = 0.001
    """and so close together those of the same"""


PRODUCTION = Windows()

# For a drill that scrapes and evaluates every second.
SHORT = Windows(event="8s", memory="10m", keep_firing="4s", told="15s", down_for="2s", down_memory="10m", failed="8s",
                rate="10s", straggler_for="5s", absent_for="5s", missing_for="5s", vanished="10m", vanished_for="5s",
                not_started_for="60s", snapshots="20s", snapshots_for="5s", starvation_for="60s", throughput_for="60s",
                memory_for="60s", diverged_for="60s")


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
    runbook_base: str = ""
    """where docs/runbooks are published; empty: the run's own endpoint has them while it lives"""
    dashboard_base: str = "http://localhost:3000"
    jobs: str = ""
    """regular expression of jobs whose targets are expected to be up even if no run was ever seen there"""
