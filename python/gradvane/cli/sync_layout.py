"""The table of `gradvane syncs`, as wide as there is room: first its headings are folded, then each place has a line of its
own above its numbers. Nothing of a place or of a number is ever cut: they are copied and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

_HEADINGS = (("", "kind"), ("", "calls"), ("calls", "per step"), ("time", "blocked"), ("share of", "wall time"))
"""of all but the place"""
_SITE = Text("site")
_MARGIN = "  "


@dataclass(frozen=True)
class Row:
    place: Text
    numbers: tuple[str, ...]
    """a kind, and what stands below the other headings"""


def lines(rows: list[Row], width: int | None) -> list[Text]:
    """None: as wide as it likes."""
    in_one = [(" ".join(filter(None, words)),) for words in _HEADINGS]
    folded = _Numbers(_HEADINGS, rows, "  ")
    for numbers in (_Numbers(in_one, rows, "    "), _Numbers(in_one, rows, "  "), folded):
        beside = numbers.beside(rows)
        if width is None or all(line.cell_len <= width for line in beside):
            return beside
    return folded.below(rows)


class _Numbers:
    """All columns but the first."""

    def __init__(self, headings: Sequence[tuple[str, ...]], rows: list[Row], gap: str) -> None:
        columns = [[*words, *(row.numbers[i] for row in rows)] for i, words in enumerate(headings)]
        widths = [max(map(len, column)) for column in columns]
        columns = [
            [cell.rjust(width) if i else cell.ljust(width) for cell in column]
            for i, (column, width) in enumerate(zip(columns, widths))
        ]
        joined = [gap.join(cells).rstrip() for cells in zip(*columns)]
        self._heading, self._body = joined[: len(headings[0])], joined[len(headings[0]) :]
        self._gap = gap

    def beside(self, rows: list[Row]) -> list[Text]:
        """Each place in one line with its numbers."""
        widest = max(place.cell_len for place in (_SITE, *(row.place for row in rows)))
        places = [Text()] * (len(self._heading) - 1) + [_SITE, *(row.place for row in rows)]
        found = []
        for place, line in zip(places, self._heading + self._body):
            found.append(Text.assemble(_MARGIN, place, " " * (widest - place.cell_len), self._gap, line))
        return self._dimmed(found, len(self._heading))

    def below(self, rows: list[Row]) -> list[Text]:
        """Each place in a line of its own."""
        found = [Text.assemble(_MARGIN, _SITE), *(Text(_MARGIN * 2 + line) for line in self._heading)]
        for row, line in zip(rows, self._body):
            found += [Text.assemble(_MARGIN, row.place), Text(_MARGIN * 2 + line)]
        return self._dimmed(found, len(self._heading) + 1)

    @staticmethod
    def _dimmed(found: list[Text], heading: int) -> list[Text]:
        for line in found[:heading]:
            line.stylize("dim")
        return found
