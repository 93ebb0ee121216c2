"""The dashboards' files, as Grafana reads them."""

from __future__ import annotations

import json

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana_boards import compare, fleet, gradients, overview, stability, syncs
from grafana_boards.house import Settings
from grafana_boards.layout import Board, built


def boards() -> list[Board]:
    return [overview.board(), gradients.board(), stability.board(), syncs.board(), fleet.board(),
            compare.board()]


def in_sight(value: object) -> object:
    """The SDK gives every event and link a `placement` that later Grafanas hide in a menu. They stand above the graphs
    where there is none."""
    if isinstance(value, dict):
        return {key: in_sight(inside) for key, inside in value.items()
                if (key, inside) != ("placement", "inControlsMenu")}
    return [in_sight(inside) for inside in value] if isinstance(value, list) else value


def board_files(settings: Settings) -> dict[str, str]:
    """File name -> text."""
    texts = {board.uid: JSONEncoder().encode(built(board, settings)) for board in boards()}
    return {f"{uid}.json": json.dumps(in_sight(json.loads(text)), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            for uid, text in texts.items()}
