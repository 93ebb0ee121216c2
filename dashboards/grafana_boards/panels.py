"""The kinds of panels, each with the settings that all of its kind have here.

`says` is the panel's description: what a person should conclude from it, not how it was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard as build, heatmap, stat, statetimeline
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.cog import builder as cogbuilder
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.models import common as shared, dashboard, heatmap as heatmap_models

from grafana_boards.house import GREY, SOURCE, page_link
from grafana_boards.queries import Query


@dataclass(frozen=True)
class Sized:
    """A panel, how much room it takes of 24 columns, and the runbooks it leads to."""

    panel: cogbuilder.Builder[dashboard.Panel]
    width: int
    height: int
    runbooks: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    """UIDs of the dashboards that say more"""


@dataclass(frozen=True)
class Step:
    """From this value on, that colour."""

    value: float
    colour: str


@dataclass(frozen=True)
class State:
    """A value that stands for something."""

    value: int
    text: str
    colour: str


class Common(Protocol):
    """What every builder of panels can do."""

    def title(self: B, title: str) -> B: ...
    def description(self: B, description: str) -> B: ...
    def datasource(self: B, datasource: shared.DataSourceRef) -> B: ...
    def unit(self: B, unit: str) -> B: ...
    def no_value(self: B, no_value: str) -> B: ...
    def with_target(self: B, target: cogbuilder.Builder[variants.Dataquery]) -> B: ...


B = TypeVar("B", bound=Common)


def begun(builder: B, title: str, says: str, unit: str, queries: Sequence[Query], nothing: str = "") -> B:
    """`nothing`: what stands there when there is no value."""
    builder = builder.title(title).description(says).datasource(SOURCE).unit(unit)
    if nothing:
        builder = builder.no_value(nothing)
    for index, query in enumerate(queries):
        builder = builder.with_target(query.built(index))
    return builder


def thresholds(base: str, steps: Sequence[Step]) -> build.ThresholdsConfig:
    first = dashboard.Threshold(value=None, color=base)
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(
        [first, *(dashboard.Threshold(value=step.value, color=step.colour) for step in steps)])


def fixed(colour: str) -> build.FieldColor:
    return build.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(colour)


def by_threshold() -> build.FieldColor:
    return build.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS)


def palette() -> build.FieldColor:
    return build.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC)


def coloured(name: str, colour: str) -> tuple[str, list[dashboard.DynamicConfigValue]]:
    """An override: the series of this name has this colour."""
    return name, [dashboard.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]


def last_value() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


@dataclass(frozen=True)
class Look:
    """What may differ from graph to graph."""

    width: int = 12
    height: int = 8
    stacked: bool = False
    bars: bool = False
    logarithmic: bool = False
    from_zero: bool = False
    at_least: float | None = None
    """the axis reaches to this at least, so that a flat line of zeros has a sensible one"""
    most: float | None = None
    decimals: int | None = None
    many: bool = False
    """more series than fit beside each other: the legend is a table that says the last and largest value"""
    colours: dict[str, str] = field(default_factory=dict)
    runbooks: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    has_page: bool = True
    """its series have the label `instance`"""
    nothing: str = ""


def graph(title: str, says: str, unit: str, queries: Sequence[Query], look: Look = Look()) -> Sized:
    """Lines over time. A gap stays a gap."""
    panel = begun(timeseries.Panel(), title, says, unit, queries, look.nothing)
    legend = common.VizLegendOptions().show_legend(True).placement(shared.LegendPlacement.BOTTOM)
    if look.many:
        legend = (legend.display_mode(shared.LegendDisplayMode.TABLE).calcs(["lastNotNull", "max"])
                  .sort_by("Last *").sort_desc(True))
    else:
        legend = legend.display_mode(shared.LegendDisplayMode.LIST).calcs([])
    panel = (panel.legend(legend)
             .tooltip(common.VizTooltipOptions().mode(shared.TooltipDisplayMode.MULTI)
                      .sort(shared.SortOrder.DESCENDING))
             .thresholds(thresholds("green", ())).color_scheme(palette())
             .line_width(1).fill_opacity(0).show_points(shared.VisibilityMode.NEVER).span_nulls(False))
    if look.stacked:
        panel = panel.stacking(common.StackingConfig().mode(shared.StackingMode.NORMAL).group("A")).fill_opacity(40)
    if look.bars:
        panel = panel.draw_style(shared.GraphDrawStyle.BARS).fill_opacity(80)
    if look.logarithmic:
        panel = panel.fill_opacity(0).scale_distribution(
            common.ScaleDistributionConfig().type(shared.ScaleDistribution.LOG).log(10))
    if look.from_zero:
        panel = panel.min(0)
    if look.at_least is not None:
        panel = panel.axis_soft_max(look.at_least)
    if look.most is not None:
        panel = panel.max(look.most)
    if look.decimals is not None:
        panel = panel.decimals(look.decimals)
    for name, colour in look.colours.items():
        panel = panel.override_by_name(*coloured(name, colour))
    if look.has_page:
        panel = panel.data_links([page_link()])
    return Sized(panel, look.width, look.height, look.runbooks, look.more)


def tile(title: str, says: str, unit: str, query: Query, base: str = "text", steps: Sequence[Step] = (),
         decimals: int | None = None, width: int = 3, height: int = 5, nothing: str = "no data",
         runbooks: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> Sized:
    """One number; a range's query has its course behind it."""
    panel = (begun(stat.Panel(), title, says, unit, [query], nothing)
             .reduce_options(last_value()).thresholds(thresholds(base, steps)).color_scheme(by_threshold())
             .color_mode(shared.BigValueColorMode.VALUE)
             .graph_mode(shared.BigValueGraphMode.NONE if query.now else shared.BigValueGraphMode.AREA)
             .justify_mode(shared.BigValueJustifyMode.AUTO).text_mode(shared.BigValueTextMode.VALUE))
    if decimals is not None:
        panel = panel.decimals(decimals)
    return Sized(panel, width, height, runbooks, more)


def name_tile(title: str, says: str, query: Query, colours: dict[str, str], width: int = 3, height: int = 5,
              nothing: str = "no data", runbooks: tuple[str, ...] = ()) -> Sized:
    """The names of the series that are there, and how many each stands for."""
    panel = (begun(stat.Panel(), title, says, "none", [query], nothing)
             .reduce_options(last_value()).thresholds(thresholds("text", ())).color_scheme(fixed("text"))
             .color_mode(shared.BigValueColorMode.VALUE).graph_mode(shared.BigValueGraphMode.NONE)
             .text_mode(shared.BigValueTextMode.VALUE_AND_NAME))
    for name, colour in colours.items():
        panel = panel.override_by_name(*coloured(name, colour))
    return Sized(panel, width, height, runbooks)


def mappings(states: Sequence[State]) -> list[dashboard.ValueMapping]:
    return [dashboard.ValueMap({str(state.value): dashboard.ValueMappingResult(
        text=state.text, color=state.colour, index=index) for index, state in enumerate(states)})]


def timeline(title: str, says: str, queries: Sequence[Query], states: Sequence[State], height: int = 6,
             width: int = 24, runbooks: tuple[str, ...] = (), nothing: str = "") -> Sized:
    """A strip for each series, coloured by what its value stands for."""
    panel = (begun(statetimeline.Panel(), title, says, "none", queries, nothing)
             .mappings(mappings(states)).thresholds(thresholds(GREY, ())).color_scheme(fixed(GREY))
             .show_value(shared.VisibilityMode.NEVER).merge_values(True).row_height(0.8).fill_opacity(85)
             .line_width(0)
             .legend(common.VizLegendOptions().show_legend(True).display_mode(shared.LegendDisplayMode.LIST)
                     .placement(shared.LegendPlacement.BOTTOM).calcs([]))
             .tooltip(common.VizTooltipOptions().mode(shared.TooltipDisplayMode.SINGLE).sort(shared.SortOrder.NONE)))
    return Sized(panel, width, height, runbooks)


def heat(title: str, says: str, unit: str, query: Query, scheme: str, least: float | None = None,
         most: float | None = None, height: int = 9, reverse: bool = False) -> Sized:
    """A row for each series, a cell for each point in time."""
    colours = (heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme(scheme).steps(64)
               .reverse(reverse))
    if least is not None and most is not None:
        colours = colours.min(least).max(most)
    panel = (begun(heatmap.Panel(), title, says, unit, [query])
             # Nothing is left out: the panel's default hides every cell that is not above 0.
             .filter_values(heatmap.FilterValueRange().le(-1e9)).calculate(False).cell_gap(1)
             .cell_values(heatmap.CellValues().unit(unit).decimals(1)).show_legend()
             .show_value(shared.VisibilityMode.NEVER).color(colours)
             .tooltip(heatmap.HeatmapTooltip().mode(shared.TooltipDisplayMode.SINGLE).show_color_scale(True)))
    return Sized(panel, 24, height)


def bars(title: str, says: str, unit: str, query: Query, width: int = 12, height: int = 9,
         colour: str = "blue", decimals: int | None = None, runbooks: tuple[str, ...] = (),
         nothing: str = "") -> Sized:
    """A horizontal bar for each series, as long as its value now."""
    panel = (begun(bargauge.Panel(), title, says, unit, [query], nothing)
             .reduce_options(last_value()).orientation(shared.VizOrientation.HORIZONTAL)
             .display_mode(shared.BarGaugeDisplayMode.BASIC).value_mode(shared.BarGaugeValueMode.TEXT)
             .text(common.VizTextDisplayOptions().title_size(12).value_size(14))
             # Few bars are not thicker than many.
             .sizing(shared.BarGaugeSizing.MANUAL).min_viz_width(8).min_viz_height(16).max_viz_height(32)
             .show_unfilled(True).min(0).thresholds(thresholds(colour, ())).color_scheme(fixed(colour)))
    if decimals is not None:
        panel = panel.decimals(decimals)
    return Sized(panel, width, height, runbooks)
