"""One screen of a run: its state in words, its numbers, its worst parameters."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console, Group
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gradvane.cli.agent_api import plain

MOST_PARAMS = 15
_READ = ("finite", "zero", "nonfinite")
_NO_NUMBERS = "\N{EN DASH}"
_COLOURS = {"running": "green", "finished": "cyan", "starting": "yellow", "stalled": "yellow"}
_WORDS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf", "pos_inf": "+Inf", "neg_inf": "-Inf", "grad": "gradient"}
"""what JSON calls so, and people do not"""


def view(status: dict[str, Any], params: dict[str, Any], console: Console | None = None) -> Panel:
    """With a console, as many parameters as its terminal has room for."""
    latest = status.get("latest") or {}
    state = plain(status.get("state", "?"))
    words = Text(state, style=f"bold {_COLOURS.get(state, 'red')}")
    if status.get("reason"):
        words.append(f"  {plain(status['reason'])}", style="default")
    if first := status.get("nonfinite", {}).get("first"):
        words.append(f"\nfirst non-finite: {plain(_blame(first))}", style="bold red")
    numbers = Table.grid(padding=(0, 3))
    for name, value in _numbers(status, latest):
        numbers.add_row(Text(name, style="dim"), _cell(value))

    def panel(count: int) -> Panel:
        parts: list[Any] = [words, numbers]
        if count:
            parts += ["", *_worst(params, count, console)]
        title = _cell(f"{status.get('run', '?')}  rank {status.get('rank', 0)}")
        return Panel(Group(*parts), title=title, title_align="left")

    count = min(len(params.get("params") or ()), MOST_PARAMS)
    while count and console and console.is_terminal and len(console.render_lines(panel(count))) >= console.height:
        count -= 1
    return panel(count)


def _cell(text: object, style: str = "") -> Text:
    """Names are shown as they are: rich takes [brackets] in a str for markup."""
    return Text(plain(text), style=style)


def _blame(first: dict[str, Any]) -> str:
    kind = _WORDS.get(first.get("kind", ""), "NaN and Inf")  # several kinds at once have no one name
    site = _WORDS.get(first.get("site", ""), first.get("site", "?"))
    where = f" of {first['param']}" if first.get("param") else ""
    element = f", element {number(first['element'])}," if "element" in first and where else ""
    return f"{kind} in the {site}{where}{element} at step {number(first.get('run_step', '?'))}"


def _numbers(status: dict[str, Any], latest: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("step", number(latest.get("run_step", latest.get("step"))))]
    if seconds := latest.get("step_seconds"):
        rows.append(("steps / s", number(1 / seconds)))
    if latest.get("loss") is not None:
        rows.append(("loss", number(latest["loss"])))
    rows += _norms(latest)
    for name, key in (
        ("learning rate", "lr"),
        ("loss scale", "loss_scale"),
    ):
        if latest.get(key) is not None:
            rows.append((name, number(latest[key])))
    bad = status.get("nonfinite", {}).get("steps", {})
    if any(bad.values()):
        rows.append(("bad steps", ", ".join(f"{_WORDS.get(site, site)} {number(n)}" for site, n in bad.items() if n)))
    if status.get("skipped_steps"):
        rows.append(("skipped steps", number(status["skipped_steps"])))
    if status.get("incidents_total"):
        rows.append(("incidents", _incidents(status)))
    return rows


def _norms(latest: dict[str, Any]) -> list[tuple[str, str]]:
    """Of the whole gradient. They are over its finite elements, which may be a part, or none."""
    rows = []
    bad, norm = sum(latest.get("nonfinite", {}).get("grad", {}).values()), number(latest.get("grad_norm"))
    if bad:
        of = f"{number(bad)} of {number(latest['numel'])} elements" if "numel" in latest else f"{number(bad)} elements"
        rows.append(("gradient norm", f"{norm or _NO_NUMBERS}, without {of} that are not finite"))
    elif norm:
        rows.append(("gradient norm", norm))
    if latest.get("clip_coefficient") is not None and latest.get("grad_norm_at_step") is not None:
        rows.append(("after clipping", number(latest["grad_norm_at_step"])))
    return rows


def _incidents(status: dict[str, Any]) -> str:
    still = [str(one.get("class", "?")) for one in status.get("incidents", ()) if one.get("closed_at") is None]
    return number(status["incidents_total"]) + (f", still open: {', '.join(still)}" if still else "")


def _worst(params: dict[str, Any], count: int, console: Console | None) -> list[Any]:
    """A line that says what the table is, and the table, in a panel of the console."""
    rows = params["params"][:count]
    about = f"{number(count)} of {number(params.get('total', count))} parameters, worst first"
    dates = {row["update_ratio"]["run_step"] for row in rows if row.get("update_ratio")}
    optional = ["zeros", "largest", "update ratio"]
    while True:
        table = _table(rows, optional)
        if console is None or Measurement.get(console, console.options, table).maximum <= console.width - 4:
            break
        if not optional:
            break
        optional.pop(0)
    if "update ratio" in optional and len(dates) == 1:
        about += f"; update ratios of step {number(dates.pop())}"
    return [Text(about, style="dim"), table]


def _table(rows: list[dict[str, Any]], optional: list[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("parameter", overflow="fold")
    table.add_column("state", no_wrap=True)
    names = [name for name in ("gradient norm", "largest", "zeros", "update ratio") if name in (*optional, "gradient norm")]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        state = str(row.get("state", ""))
        grad = row.get("grad") or {} if state in _READ else {}  # else it is of an earlier step
        values = {
            "gradient norm": _of_finite(grad, "norm"),
            "largest": _of_finite(grad, "abs_max"),
            "zeros": percent(grad.get("zero_ratio")),
            "update ratio": number((row.get("update_ratio") or {}).get("value")),
        }
        shown = _cell(state, "bold red" if state == "nonfinite" else "")
        table.add_row(_cell(row.get("name", "?")), shown, *(_cell(values[name]) for name in names))
    return table


def _of_finite(grad: dict[str, Any], key: str) -> str:
    """Numbers are those of the finite elements. Where there is none, older agents say 0."""
    if grad and sum(grad.get("nonfinite", {}).values()) >= grad.get("numel", math.inf):
        return _NO_NUMBERS
    return number(grad.get(key))


def number(value: Any) -> str:
    """For people: four digits, and what was not measured is blank."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(number(one) for one in value)
    if isinstance(value, str):  # "nan", "inf": JSON has no such numbers
        return _WORDS.get(value, value)
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e6):
        return f"{int(value):,}"
    return f"{value:.4g}"


def percent(ratio: float | None) -> str:
    """Never 0 % of what is not none, and never 100 % of what is not all."""
    if ratio is None:
        return ""
    text = f"{100 * ratio:.1f}"
    if 0 < ratio < 1 and text in ("0.0", "100.0"):
        return "< 0.1 %" if ratio < 0.5 else "> 99.9 %"
    return f"{text.removesuffix('.0')} %"
