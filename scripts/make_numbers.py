"""Writes what repeats the tables of numbers and of incident classes, from what gradvane_numbers says of them.

    build/release/bin/gradvane_numbers | python3 scripts/make_numbers.py

Of numbers (record/numbers.hpp) that is the page's numbers.ts, docs/numbers.md, rows of docs/step-log.md and parts of
docs/api/*.schema.json; of incident classes see made_incidents.py. With --check nothing is written: it names the files
that are out of date, and ends with status 1 if there are any.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from made_incidents import agent_tables_py, detectors_md, incident_classes_ts, severities_py

ROOT = Path(__file__).resolve().parents[1]
NUMBER = {"$ref": "#/$defs/number"}
OTHER_FORM = ["lr"]  # in the step log too, as a number or an array
UNITS = {"share": "share", "ratio": "ratio", "seconds": "seconds", "bytes": "bytes", "per_second": "per second",
         "calls": "calls", "plain": ""}


def numbers_ts(table: dict) -> str:
    def rows(name: str, numbers: list[dict], keys: list[str]) -> str:
        lines = [f"  {{ {', '.join(f'{key}: {json.dumps(number[key])}' for key in keys)} }},\n" for number in numbers]
        return f"export const {name} = [\n{''.join(lines)}] as const;\n"

    return (
        "// Made by scripts/make_numbers.py from record/numbers.hpp. Do not edit: change the table there.\n\n"
        "/** Numbers of a group and of a parameter. `tensor_key` is the name beside a gradient's or weight's others. */\n"
        + rows("TENSOR_NUMBERS", table["tensor"], ["key", "tensor_key", "title", "label", "site", "join", "unit"])
        + "export type TensorNumber = (typeof TENSOR_NUMBERS)[number];\n\n"
        "/** Numbers of a step that the history has. */\n"
        + rows("STEP_NUMBERS", [n for n in table["step"] if n["is_charted"]], ["key", "title", "words", "unit", "site"]))


def numbers_md(table: dict) -> str:
    def row(*cells: str) -> str:
        return f"| {' | '.join(cells)} |\n"

    def metric(number: dict) -> str:
        return f"`{number['metric']}`" if "metric" in number else ""

    def yes(flag: bool) -> str:
        return "yes" if flag else ""

    text = ("<!-- Made by scripts/make_numbers.py from record/numbers.hpp. Do not edit: change the table there. -->\n"
            "# Numbers\n\nEvery number of a step, of a group and of a parameter that Gradvane shows, and where it is. "
            "What was not measured\nis absent. Norms and magnitudes are over finite elements.\n\n"
            "## Of a step\n\n")
    text += row("Key", "Unit", "Metric", "Step log", "History") + row(*["---"] * 5)
    for n in table["step"]:
        text += row(f"`{n['key']}`", UNITS[n["unit"]], metric(n), yes(n["is_logged"]), yes(n["is_charted"]))
    text += ("\nThe step log has some of them in another form: `lr`, `vanishing`, `exploding`, the counts `zero`, "
             "`subnormal` and\n`numel`, and host syncs in `syncs`. The time of a step, tokens, samples and learning "
             "rates have metrics of their own kind\n([metrics.md](metrics.md)).\n"
             "\n## Of a group and of a parameter\n\nThe heat map, the parameter table and `/api/v1/param` have each of "
             "them.\n\n")
    text += row("Key", "Unit", "Metric of a group", "`gradvane diff`", "Meaning") + row(*["---"] * 5)
    for n in table["tensor"]:
        text += row(f"`{n['key']}`", UNITS[n["unit"]], metric(n), yes(n["is_compared"]), n["help"])
    return text


def step_log_md(table: dict) -> str:
    """The page of the step log, with a row for each number that is joined over tensors."""
    joined = {n["key"] for n in table["tensor"] if n["is_of_step"]}
    rows = [f"| `{n['key']}` | {n['help'][0].lower()}{n['help'][1:]} |\n" for n in table["step"] if n["key"] in joined]
    lines = (ROOT / "docs/step-log.md").read_text().splitlines(keepends=True)
    old = [line for line in lines if line.startswith(tuple(f"| `{key}`" for key in joined))]
    at = lines.index(old[0])
    return "".join([*(line for line in lines[:at] if line not in old), *rows,
                    *(line for line in lines[at:] if line not in old)])


def with_properties(there: dict, wanted: dict[str, dict], old: Callable[[str], bool]) -> dict:
    """`there` with `wanted` in the place of what is `old`; a property that stays keeps its description."""
    result, placed = {}, False
    for key, value in there.items():
        if not (key in wanted or old(key)):
            result[key] = value
        elif not placed:
            result |= {name: there.get(name, schema) for name, schema in wanted.items()}
            placed = True
    return result if placed else result | wanted


def schemas(table: dict) -> dict[str, dict]:
    folder = ROOT / "docs/api"
    read = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.schema.json"))}
    tensor, step = table["tensor"], table["step"]
    keys = [n["key"] for n in tensor]
    charted = [n["key"] for n in step if n["is_charted"]]

    read["heatmap.schema.json"]["properties"]["value"]["enum"] = keys
    series = read["param.schema.json"]["properties"]["series"]
    series["required"] = keys
    series["properties"] = {key: {"type": "array", "items": {"type": ["number", "null"]}} for key in keys}
    series = read["history.schema.json"]["properties"]["series"]
    series["description"] = (f"By name: {', '.join(charted)}, and user.NAME for custom metrics. lr is the largest of the "
                             "optimizer's rates. Seven significant digits.")
    series["propertyNames"]["pattern"] = f"^({'|'.join(charted)}|user\\..+)$"

    of_tensor = read["params.schema.json"]["$defs"]["tensor"]
    of_tensor["properties"] = with_properties(
        of_tensor["properties"],
        {n["tensor_key"]: NUMBER for n in tensor if n["site"] == "grad"},
        lambda key: of_tensor["properties"][key].get("$ref") == NUMBER["$ref"] and key != "mean")
    of_group = read["status.schema.json"]["properties"]["groups"]["items"]
    of_group["properties"] = with_properties(
        of_group["properties"],
        {n["key"]: NUMBER if n["site"] == "grad" else {"$ref": "#/$defs/dated"} for n in tensor},
        lambda key: key not in ("name", "params"))
    of_step = read["step.schema.json"]
    logged = {n["key"]: {"description": f"{n.get('help', n['title'])}.", **NUMBER} for n in step if n["is_logged"]}
    known = {n["key"] for n in step} - set(OTHER_FORM)
    of_step["properties"] = ({key: there for key, there in of_step["properties"].items()
                              if key in logged or key not in known}
                             | {key: new for key, new in logged.items() if key not in of_step["properties"]})
    incident = read["status.schema.json"]["properties"]["incidents"]["items"]["properties"]
    incident["class"]["enum"] = [kind["name"] for kind in table["incidents"]]
    return {f"docs/api/{name}": schema for name, schema in read.items()}


def main() -> int:
    table = json.load(sys.stdin)
    files = {"dashboards/page/src/words/numbers.ts": numbers_ts(table), "docs/numbers.md": numbers_md(table),
             "docs/step-log.md": step_log_md(table),
             "dashboards/page/src/words/incident_classes.ts": incident_classes_ts(table),
             "dashboards/alert_rules/agent_tables.py": agent_tables_py(table),
             "python/gradvane/cli/tables/severities.py": severities_py(table),
             "docs/detectors.md": detectors_md(table, (ROOT / "docs/detectors.md").read_text())}
    files |= {name: json.dumps(schema, indent=1, ensure_ascii=False) + "\n" for name, schema in schemas(table).items()}
    stale = [name for name, text in files.items()
             if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    if "--check" in sys.argv[1:]:
        print("\n".join(stale))
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(files[name])
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
