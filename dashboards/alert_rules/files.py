"""The rule files: which rule stands in which group of which file."""

from __future__ import annotations

from alert_rules.incident_alerts import capped, dropping, group_of_alerts, incident_alert, nonfinite_alerts
from alert_rules.pace_alerts import data_starvation, device_memory, replicas_diverged, straggler, throughput_drop
from alert_rules.presence_alerts import absent, name_shared, ranks_missing, run_vanished, target_down
from alert_rules.recording import recordings
from alert_rules.rule import Alert, Group, file_text
from alert_rules.state_alerts import failed, not_started, snapshot_too_old, snapshots_refused, stalled, terminated
from alert_rules.windows import Settings

ALERTS = "gradvane-alerts.yaml"
RECORDING = "gradvane-recording.yaml"
ABSENT = "gradvane-absent.yaml"
HEAD = "Made by dashboards/make_alerts.py. Do not edit: change dashboards/alert_rules/ and run it again."


def alert_groups(settings: Settings) -> list[Group]:
    windows = settings.windows
    return [
        Group("gradvane-nonfinite", nonfinite_alerts(windows)),
        Group("gradvane-run", (stalled(windows), target_down(windows, settings.jobs), failed(windows),
                               terminated(windows), ranks_missing(windows), run_vanished(windows),
                               not_started(windows), name_shared(windows), snapshots_refused(windows),
                               snapshot_too_old(windows))),
        Group("gradvane-pace", (straggler(windows), data_starvation(windows), throughput_drop(windows),
                                device_memory(windows), replicas_diverged(windows))),
        *(Group(f"gradvane-{group}", group_of_alerts(group, windows)) for group in ("loss", "gradients", "steps")),
        Group("gradvane-agent", (dropping(windows), incident_alert("GradvaneAgentOverCostBudget", windows),
                                 capped(windows))),
    ]


def alert_names(settings: Settings) -> list[str]:
    return [rule.name for group in alert_groups(settings) for rule in group.rules if isinstance(rule, Alert)]


def rule_files(settings: Settings) -> dict[str, str]:
    """File name -> text."""
    bases = settings.runbook_base.rstrip("/"), settings.dashboard_base.rstrip("/")
    recording = [Group("gradvane-recording", recordings(settings.windows))]
    return {
        ALERTS: file_text(HEAD, alert_groups(settings), *bases),
        RECORDING: file_text(HEAD, recording, *bases),
    }


def prometheus_rules(files: dict[str, str]) -> str:
    """The same files as objects PrometheusRule of Prometheus Operator."""
    texts = [f"# {HEAD}\n"]
    for name, text in sorted(files.items()):
        groups = "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True) if not line.startswith("#"))
        texts.append("---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n"
                     f"  name: {name.removesuffix('.yaml')}\nspec:\n{groups}")
    return "".join(texts)


def absent_file(settings: Settings, run: str) -> str:
    bases = settings.runbook_base.rstrip("/"), settings.dashboard_base.rstrip("/")
    return file_text(HEAD, [Group("gradvane-absent", (absent(settings.windows, run),))], *bases)
