"""Curves over the steps of runs: Grafana's XY chart.

It draws a curve for each data frame: one number of the frame is x, the other y. Two queries as tables become such
frames: `merge` puts x and y of the same time and curve in one row, and `partitionByValues` makes a frame of each curve.
"""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, xychart
from grafana_foundation_sdk.models import common as shared, dashboard, units, xychart as models

from grafana_boards.panels import Sized, begun, palette, thresholds
from grafana_boards.promql import SEVERAL, by
from grafana_boards.queries import Query
from grafana_boards.tables import property_of

CURVE = "whose"
"""the label that names a curve: the run, and the optimizer where there are several"""
X = "Value #A"
"""what Grafana calls the value of the first of several tables"""
OF_RUN = "run, optimizer"


def of_runs(metric: str, *matchers: str) -> str:
    return metric + "{" + ",".join((SEVERAL, *matchers)) + "}"


def rate_of_runs(metric: str) -> str:
    return f"rate({of_runs(metric)}[$__rate_interval])"


def named(expression: str) -> str:
    joined = f'label_join({expression}, "{CURVE}", ", optimizer ", "run", "optimizer")'
    return by(CURVE, "max", f'label_replace({joined}, "{CURVE}", "$1", "{CURVE}", "(.*), optimizer ")')


def steps_of(number: str) -> str:
    """The step of the run at each point at which it has this number, and at no other: XY charts know no gaps."""
    return named(f"({number}) * 0 + on (run) group_left () {by('run', 'max', of_runs('gradvane_run_step'))}")


@dataclass(frozen=True)
class CurveLook:
    """What may differ from chart to chart."""

    width: int = 12
    height: int = 9
    logarithmic: bool = False
    nothing: str = ""
    runbooks: tuple[str, ...] = ()


def by_step(title: str, says: str, unit: str, number: str, look: CurveLook = CurveLook()) -> Sized:
    """A curve for each run. `number`: an expression with the label `run`, and `optimizer` where that matters."""
    queries = [Query(steps_of(number), table=True), Query(named(number), table=True)]
    by_name = xychart.MatcherConfig().id("byName").options(X)
    panel = (begun(xychart.Panel(), title, says, unit, queries, look.nothing)
             .transformations([
                 dashboard.DataTransformerConfig("merge", options={}),
                 dashboard.DataTransformerConfig("sortBy", options={"fields": {}, "sort": [{"field": "Time"}]}),
                 dashboard.DataTransformerConfig("partitionByValues", options={
                     "fields": [CURVE], "keepFields": False, "naming": {"asLabels": False}})])
             .mapping(models.SeriesMapping.AUTO)
             .series([xychart.XYSeriesConfig().x(xychart.XychartXYSeriesConfigX().matcher(by_name))])
             .legend(common.VizLegendOptions().show_legend(True).placement(shared.LegendPlacement.BOTTOM)
                     .display_mode(shared.LegendDisplayMode.LIST).calcs([]))
             .tooltip(common.VizTooltipOptions().mode(shared.TooltipDisplayMode.SINGLE).sort(shared.SortOrder.NONE))
             .thresholds(thresholds("green", ())).color_scheme(palette())
             .show(models.XYShowMode.LINES).line_width(1))
    of_x = [property_of("displayName", "Step"), property_of("custom.axisLabel", "Step"),
            property_of("unit", units.LocaleFormat), property_of("decimals", 0)]
    if look.logarithmic:
        panel = panel.scale_distribution(common.ScaleDistributionConfig().type(shared.ScaleDistribution.LOG).log(10))
        # What holds for every number of a frame holds for x, too.
        of_x.append(property_of("custom.scaleDistribution", {"type": "linear"}))
    panel = panel.override_by_name(X, of_x)
    return Sized(panel, look.width, look.height, look.runbooks)
