"""Events over every graph: what happened to the run, as far as its metrics tell."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build

from grafana_boards.house import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SOURCE
from grafana_boards.promql import PROCESS, increase, of_run, series


def event(name: str, colour: str, expression: str, title: str, text: str, shown: bool = True,
          at_value: bool = False) -> build.AnnotationQuery:
    """`at_value`: the value says when it was, in milliseconds since the epoch."""
    return (build.AnnotationQuery().name(name).datasource(SOURCE).icon_color(colour).enable(shown).expr(expression)
            .title_format(title).text_format(text).tag_keys("rank").use_value_for_time(at_value))


def incidents() -> str:
    """An incident that opened, with what is known of where it began."""
    opened = increase("gradvane_incidents_total")
    return (f"({opened} > 0)\n* on ({PROCESS}, class) group_left (step, site, kind, param, group)\n"
            f"{series('gradvane_incident_info')}\n"
            f"or on ({PROCESS}, class)\n{opened} > 0")


def events() -> list[build.AnnotationQuery]:
    return [
        event("Run starts", BLUE, f"{series('gradvane_run_start_timestamp_seconds')} * 1000",
              "Rank {{rank}} starts", "{{run}} on {{instance}}", at_value=True),
        event("Run ends", GREY, series("gradvane_run_end_info"),
              "Rank {{rank}} ends: {{reason}}", "{{run}} on {{instance}}"),
        event("Incidents", RED, incidents(), "Rank {{rank}}: {{class}}",
              "step {{step}} {{kind}} {{param}}"),
        # A number that the training loop logs under this name; docs/dashboards.md says how.
        event("Checkpoints", GREEN,
              series("gradvane_user_metric", 'name="checkpoint_timestamp_seconds"') + " * 1000",
              "Checkpoint", "{{run}}, rank {{rank}}", at_value=True),
        event("Alerts", ORANGE, of_run("ALERTS", 'alertstate="firing"'), "{{alertname}}",
              "{{severity}}: {{run}}", shown=False),
        event("Recordings", PURPLE, f"{increase('gradvane_recordings_total')} > 0",
              "Recording {{result}}", "rank {{rank}} on {{instance}}", shown=False),
    ]
