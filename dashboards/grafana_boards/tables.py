"""Tables: a row for each combination of labels, a column for each query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import table as build
from grafana_foundation_sdk.models import dashboard

from grafana_boards.house import GRADIENTS, OVERVIEW, PAGE_OF_CELL, board_url
from grafana_boards.panels import Sized, State, Step, begun, by_threshold, mappings, thresholds
from grafana_boards.queries import Query


@dataclass(frozen=True)
class Column:
    """A number that is asked for. Its labels must be those of the rows."""

    title: str
    expr: str
    unit: str
    decimals: int | None = None
    states: tuple[State, ...] = ()
    """what the values stand for"""
    steps: tuple[Step, ...] = ()
    """from these values on the text has these colours"""
    hidden: bool = False
    """only the row's labels are of interest"""
    width: int = 0
    """in pixels; 0 is its share of the room"""


def property_of(name: str, value: object) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(name, value)


def look_of(column: Column) -> list[dashboard.DynamicConfigValue]:
    found = [property_of("unit", column.unit)]
    if column.width:
        found.append(property_of("custom.width", column.width))
    if column.decimals is not None:
        found.append(property_of("decimals", column.decimals))
    if column.states:
        found.append(property_of("mappings", mappings(column.states)))
    if column.steps:
        found.append(property_of("thresholds", thresholds("text", column.steps).build()))
    if column.states or column.steps:
        found.append(property_of("custom.cellOptions", {"type": "color-text"}))
    return found


# Where a label's cell leads to.
LINKS = {
    "instance": {"title": "The agent's own page", "url": PAGE_OF_CELL, "targetBlank": True},
    "run": {"title": "Overview of this run", "url": board_url(OVERVIEW, "", "var-run=${__value.raw}")},
    "rank": {"title": "Overview of this rank", "url": board_url(OVERVIEW, "&var-rank=${__value.raw}")},
    "group": {"title": "Only this group", "url": board_url(GRADIENTS, "&${rank:queryparam}&var-group=${__value.raw}")},
}


def table(title: str, says: str, labels: Sequence[tuple[str, str] | tuple[str, str, int]], columns: Sequence[Column],
          sort: str, descending: bool = True, width: int = 12, height: int = 8, runbooks: tuple[str, ...] = (),
          nothing: str = "") -> Sized:
    """`labels`: the rows' labels with the titles of their columns, and their widths where it matters. `sort`: title of
    the column that orders them."""
    queries = [Query(column.expr, now=True, table=True) for column in columns]
    panel = begun(build.Panel(), title, says, "none", queries, nothing)
    letters = [f"Value #{chr(ord('A') + index)}" for index in range(len(columns))]
    # With a single query Grafana calls its column Value.
    names = ["Value"] if len(columns) == 1 else letters
    renamed = {label: text for label, text, *_ in labels}
    renamed |= {name: column.title for name, column in zip(names, columns)}
    order = [label for label, *_ in labels] + names
    hidden = {"Time": True} | {name: True for name, column in zip(names, columns) if column.hidden}
    panel = panel.transformations([
        dashboard.DataTransformerConfig("merge", options={}),
        dashboard.DataTransformerConfig("organize", options={
            "excludeByName": hidden, "indexByName": {name: index for index, name in enumerate(order)},
            "renameByName": renamed}),
        dashboard.DataTransformerConfig("sortBy", options={
            "fields": {}, "sort": [{"field": sort, "desc": descending}]}),
    ]).thresholds(thresholds("text", ())).color_scheme(by_threshold()).min_width(60)
    for column in columns:
        if not column.hidden:
            panel = panel.override_by_name(column.title, look_of(column))
    for label, text, *pixels in labels:
        look = [property_of("custom.width", wide) for wide in pixels]
        if label in LINKS:
            look.append(property_of("links", [LINKS[label]]))
        if look:
            panel = panel.override_by_name(text, look)
    return Sized(panel, width, height, runbooks)
