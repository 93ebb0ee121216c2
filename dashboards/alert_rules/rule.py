"""One rule, and how it is written down."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Alert:
    name: str
    severity: str
    summary: str
    """the same for every run: what it is, not where"""
    expr: str
    description: tuple[str, ...]
    """pieces that are joined with blanks; a piece that may be empty begins with `{{-`"""
    hold: str = ""
    """true for this long before it fires"""
    keep_firing: str = ""


@dataclass(frozen=True)
class Recording:
    name: str
    expr: str


@dataclass(frozen=True)
class Group:
    name: str
    rules: tuple[Alert | Recording, ...]
    comment: str = field(default="")


PREFIX = "Gradvane"
"""of every alert's name: a Prometheus has alerts of many programs"""


def runbook(name: str) -> str:
    """GradvaneTrainingNonFinite -> training-non-finite"""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.removeprefix(PREFIX)).lower()


def runbook_url(name: str, base: str) -> str:
    """Without a base: at a process of the run that answers, or of any other run; else the file in the checkout."""
    file = f"{runbook(name)}.md"
    if base:
        return f"{base}/{file}"
    anyone = "gradvane_run_start_timestamp_seconds"
    of_run = f"{anyone}{{job=%[1]q,run=%[2]q}}"
    query = f"topk(1, {of_run}) or topk(1, {anyone}) unless on () {of_run}"
    return (f"{{{{ with printf `{query}` $labels.job $labels.run | query }}}}"
            f'http://{{{{ . | first | label "instance" }}}}/runbooks/{runbook(name)}'
            f"{{{{ else }}}}docs/runbooks/{file}{{{{ end }}}}")


def block(text: str, indent: int) -> str:
    return "\n".join(" " * indent + line if line else "" for line in text.strip("\n").splitlines())


def written(rule: Alert | Recording, runbook_base: str, dashboard_base: str) -> str:
    if isinstance(rule, Recording):
        return f"      - record: {rule.name}\n        expr: |\n{block(rule.expr, 10)}\n"
    lines = [f"      - alert: {rule.name}", "        expr: |", block(rule.expr, 10)]
    if rule.hold:
        lines.append(f"        for: {rule.hold}")
    if rule.keep_firing:
        lines.append(f"        keep_firing_for: {rule.keep_firing}")
    dashboard = (f"{dashboard_base}/d/gradvane-overview/gradvane-overview"
                 "?var-job={{ $labels.job | urlquery }}&var-run={{ $labels.run | urlquery }}")
    lines += [
        "        labels:",
        f"          severity: {rule.severity}",
        "          component: gradvane",
        "        annotations:",
        f"          summary: {rule.summary}",
        "          description: >-",
        *(f"            {piece}" for piece in rule.description),
        f"          runbook_url: '{runbook_url(rule.name, runbook_base)}'",
        f"          dashboard_url: '{dashboard}'",
    ]
    return "\n".join(lines) + "\n"


def file_text(head: str, groups: list[Group], runbook_base: str, dashboard_base: str) -> str:
    """A rule file as Prometheus reads it."""
    text = "".join(f"# {line}\n" for line in head.splitlines()) + "groups:\n"
    for group in groups:
        text += "".join(f"  # {line}\n" for line in group.comment.splitlines())
        text += f"  - name: {group.name}\n    rules:\n"
        text += "".join(written(rule, runbook_base, dashboard_base) for rule in group.rules)
    return text
