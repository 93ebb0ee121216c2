"""Where panels stand, and which number each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

from grafana_boards.events import events
from grafana_boards.house import MOST_COLUMNS, RANGE, RANGE_OF_RUNS, REFRESH, REFRESH_OF_RUNS, SCHEMA_VERSION, TAG
from grafana_boards.house import TITLES, Settings, board_link, header_links
from grafana_boards.panels import Sized
from grafana_boards.variables import variables


@dataclass(frozen=True)
class Row:
    """A heading with panels. A collapsed one asks for nothing until it is opened."""

    title: str
    panels: tuple[Sized, ...]
    collapsed: bool = False


@dataclass(frozen=True)
class Board:
    uid: str
    says: str
    rows: tuple[Row, ...]
    with_group: bool = False
    with_topk: bool = False
    many_runs: bool = False
    """several runs are chosen, which share steps and not times: no events, and a range that holds more than one run"""


def finished(sized: Sized, settings: Settings) -> dashboard.Panel:
    """The panel with the way to its runbooks: a link where a browser can follow it, else the file's name."""
    panel = sized.panel.build()
    pages = [settings.runbook(page) for page in sized.runbooks]
    links = [board_link(f"More: {TITLES[uid]}", uid) for uid in sized.more]
    if settings.has_links:
        links += [build.DashboardLink(f"Runbook: {page}").url(url).target_blank(True)
                  for page, url in zip(sized.runbooks, pages)]
    elif pages:
        panel.description = f"{panel.description} Runbook: {', '.join(pages)}."
    if links:
        panel.links = [link.build() for link in links]
    return panel


def placed(panels: Sequence[Sized], first_id: int, top: int, settings: Settings) -> tuple[list[dashboard.Panel], int]:
    """From left to right, a new line where the next does not fit; and the line below all of them."""
    found, x, y, line = [], 0, top, 0
    for index, sized in enumerate(panels):
        if x + sized.width > MOST_COLUMNS:
            x, y, line = 0, y + line, 0
        panel = finished(sized, settings)
        panel.id_val = first_id + index
        panel.grid_pos = dashboard.GridPos(h=sized.height, w=sized.width, x=x, y=y)
        found.append(panel)
        x, line = x + sized.width, max(line, sized.height)
    return found, y + line


def rows_of(board: Board, settings: Settings) -> list[dashboard.Panel | dashboard.RowPanel]:
    """A row has the number 100, 200 and so on, and its panels those that follow: they stay when another row grows."""
    found: list[dashboard.Panel | dashboard.RowPanel] = []
    y = 0
    for number, row in enumerate(board.rows, start=1):
        panels, below = placed(row.panels, number * 100 + 1, y + 1, settings)
        found.append(dashboard.RowPanel(
            title=row.title, collapsed=row.collapsed, id_val=number * 100, panels=panels if row.collapsed else [],
            grid_pos=dashboard.GridPos(h=1, w=MOST_COLUMNS, x=0, y=y)))
        if row.collapsed:
            y += 1
        else:
            found += panels
            y = below
    return found


def built(board: Board, settings: Settings) -> dashboard.Dashboard:
    builder = (build.Dashboard(f"Gradvane: {TITLES[board.uid]}").uid(board.uid).description(board.says)
               .tags([TAG]).editable()
               .time(RANGE_OF_RUNS if board.many_runs else RANGE, "now")
               .refresh(REFRESH_OF_RUNS if board.many_runs else REFRESH).timezone("browser")
               .tooltip(dashboard.DashboardCursorSync.CROSSHAIR).version(1))
    for link in header_links():
        builder = builder.link(link)
    for variable in variables(board.with_group, board.with_topk, board.many_runs):
        builder = builder.with_variable(variable)
    for annotation in () if board.many_runs else events():
        builder = builder.annotation(annotation)
    found = builder.build()
    found.schema_version = SCHEMA_VERSION
    found.panels = rows_of(board, settings)
    return found
