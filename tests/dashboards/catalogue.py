"""The catalogue of metrics in docs/metrics.md, and names in expressions held against it."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
FROM_SCRAPING = {"job", "instance", "run", "rank", "cluster", "namespace"}


def catalogue() -> dict[str, dict[str, set[str]]]:
    """Metric -> label -> values that it may have; none where it may have any. As docs/metrics.md says."""
    found: dict[str, dict[str, set[str]]] = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `gradvane_"):
            continue
        metric = cells[0].strip("`")
        labels: dict[str, set[str]] = {}
        for part in cells[3].split(";"):
            if part.strip():
                name, _, values = part.partition(":")
                labels[name.split("`")[1]] = {value.strip() for value in values.split(",") if value.strip()}
        found[metric] = labels
        if cells[1] == "histogram":
            found |= {metric + "_sum": labels, metric + "_count": labels, metric + "_bucket": {**labels, "le": set()}}
    return found


def selectors(text: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Every gradvane metric in an expression or a template, with its matchers."""
    text = re.sub(r"run(?:_rank)?:gradvane_[a-z_]+:[a-z0-9_]+", "", text)  # recording rules
    return [(match[1], re.findall(r'(\w+)(=~|!~|!=|=)"?([^",}]*)', match[2] or ""))
            for match in re.finditer(r"\b(gradvane_[a-z_]+)\b(?:\{([^}]*)\})?", text)]


def wrong_names(text: str, known: dict[str, dict[str, set[str]]]) -> list[str]:
    known = {"gradvane_world_size": {}, **known}  # the rules may be ahead of the catalogue
    wrong = []
    for metric, matchers in selectors(text):
        if metric not in known:
            wrong.append(metric)
            continue
        for label, operator, value in matchers:
            if label in FROM_SCRAPING:
                continue
            if label not in known[metric]:
                wrong.append(f"{metric}{{{label}}}")
            elif known[metric][label]:
                parts = value.split("|") if "~" in operator else [value]
                wrong += [f"{metric}{{{label}={part}}}" for part in parts
                          if not any(re.fullmatch(part, allowed) for allowed in known[metric][label])]
    return wrong
