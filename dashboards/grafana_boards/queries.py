"""A panel's query."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import prometheus as build
from grafana_foundation_sdk.models import prometheus

from grafana_boards.house import SOURCE


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""
    """what a series is called; {{label}} is the label's value"""
    now: bool = False
    """only at the end of the range"""
    table: bool = False
    """rows with a column for each label"""

    def built(self, index: int) -> build.Dataquery:
        query = (build.Dataquery().ref_id(chr(ord("A") + index)).datasource(SOURCE).expr(self.expr)
                 .editor_mode(prometheus.QueryEditorMode.CODE))
        if self.legend:
            query = query.legend_format(self.legend)
        shape = prometheus.PromQueryFormat.TABLE if self.table else prometheus.PromQueryFormat.TIME_SERIES
        query = query.format(shape)
        return query.instant() if self.now else query.range()
