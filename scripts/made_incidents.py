"""What repeats the tables of incident classes and of alerts (record/incident_classes.hpp, record/alert_rules.hpp)."""

import itertools
import json
import re

FROM = "Made by scripts/make_numbers.py from record/incident_classes.hpp"
DO_NOT_EDIT = "Do not edit: change the table there."


def incident_classes_ts(table: dict) -> str:
    def row(kind: dict) -> str:
        cells = (f"{key}: {json.dumps(kind[key], ensure_ascii=False)}" for key in ("name", "title", "gravity"))
        return f"  {{ {', '.join(cells)} }},\n"

    return (f"// {FROM}. {DO_NOT_EDIT}\n\n"
            "/** Gravity: what is nonfinite may have ruined what was trained; what is mild has not harmed it. */\n"
            f"export const INCIDENT_CLASSES = [\n{''.join(map(row, table['incidents']))}] as const;\n")


def agent_tables_py(table: dict) -> str:
    def row(alert: dict) -> str:
        classes = [kind["name"] for kind in table["incidents"] if kind["alert"] == alert["name"]]
        words = [json.dumps(alert[key]) for key in ("name", "severity", "group", "summary", "description")]
        several = f"({', '.join(map(json.dumps, classes))}{',' if len(classes) == 1 else ''})"
        return (f"    AlertRow({', '.join(words[:3])},\n             {words[3]},\n             {words[4]},\n"
                f"             {alert['keeps_firing']}, {several}),\n")

    names = "".join(f"    {json.dumps(kind['name'])},\n" for kind in table["incidents"])
    return (f'"""{FROM} and record/alert_rules.hpp.\n\n{DO_NOT_EDIT}\n"""\n\n'
            "from __future__ import annotations\n\nfrom alert_rules.reported import AlertRow\n\n"
            f'CLASSES = (\n{names})\n"""of incidents"""\n\n'
            f"ROWS = (\n{''.join(row(alert) for alert in table['alerts'])})\n"
            "ALERTS = {row.name: row for row in ROWS}\n")


def severities_py(table: dict) -> str:
    severity = {alert["name"]: alert["severity"] for alert in table["alerts"]}
    rows = "".join(f'    "{kind["name"]}": "{severity[kind["alert"]]}",\n' for kind in table["incidents"])
    return (f'"""{FROM} and record/alert_rules.hpp.\n\n{DO_NOT_EDIT}\n"""\n\n'
            f'from __future__ import annotations\n\nSEVERITY = {{\n{rows}}}\n"""of the alert of an incident class"""\n')


def detectors_md(table: dict, page: str) -> str:
    """The page with a new table of classes. Classes that open and close by the same rule share a row."""
    alerts = {alert["name"]: alert for alert in table["alerts"]}
    text = "| class | opens when | closes after | default | alert |\n|---|---|---|---|---|\n"
    for (opens, closes, setting), same in itertools.groupby(
            table["incidents"],
            lambda kind: (kind["opens"], kind["closes"], kind["setting"] if kind["is_default"] else "off")):
        kinds = list(same)
        links = dict.fromkeys(f"[{kind['alert']}](runbooks/{alerts[kind['alert']]['runbook']})" for kind in kinds)
        names = ", ".join(f"`{kind['name']}`" for kind in kinds)
        text += f"| {names} | {opens} | {closes} | {setting} | {', '.join(links)} |\n"
    begin, end = f"<!-- {FROM}. {DO_NOT_EDIT} -->\n", "<!-- end -->\n"
    made, count = re.subn(f"{re.escape(begin)}.*?{end}", lambda _: begin + text + end, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError("docs/detectors.md has no place for the table of classes")
    return made
