"""What every dashboard has in common."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common, dashboard

# Grafana 12.0's. Later versions bring it up to date when they load it.
SCHEMA_VERSION = 41
TAG = "gradvane"
RANGE = "now-30m"
REFRESH = "10s"
RANGE_OF_RUNS = "now-24h"
REFRESH_OF_RUNS = "1m"
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
MOST_COLUMNS = 24

OVERVIEW = "gradvane-overview"
GRADIENTS = "gradvane-gradients"
STABILITY = "gradvane-stability"
SYNCS = "gradvane-syncs"
FLEET = "gradvane-fleet"
COMPARE = "gradvane-compare"
TITLES = {OVERVIEW: "run overview", GRADIENTS: "gradients by layer", STABILITY: "stability", SYNCS: "host syncs",
          FLEET: "fleet", COMPARE: "compare runs"}

GREEN, YELLOW, ORANGE, RED = "green", "#EAB839", "orange", "red"
BLUE, GREY, PURPLE = "blue", "#808080", "purple"

# Instances are host:port of the agent's endpoint, unless scraping was told to call them otherwise.
PAGE = "http://${__field.labels.instance}/"
PAGE_OF_CELL = "http://${__value.raw}/"


@dataclass(frozen=True)
class Settings:
    """What a site may choose."""

    runbook_base: str = "docs/runbooks"

    @property
    def has_links(self) -> bool:
        """Whether a browser can follow the runbooks' addresses."""
        return "://" in self.runbook_base or self.runbook_base.startswith("/")

    def runbook(self, page: str) -> str:
        return f"{self.runbook_base.rstrip('/')}/{page}.md"


def page_link() -> build.DashboardLink:
    """From a series to the page that the agent itself serves."""
    return build.DashboardLink("The agent's own page on ${__field.labels.instance}").url(PAGE).target_blank(True)


def board_url(uid: str, narrowed: str = "&${rank:queryparam}", run: str = "${run:queryparam}") -> str:
    """One of the dashboards, with the variables and the time as they are; `narrowed` says which ranks."""
    return (f"/d/{uid}/{uid}?${{datasource:queryparam}}&${{cluster:queryparam}}&${{namespace:queryparam}}"
            f"&${{job:queryparam}}&{run}{narrowed}&${{__url_time_range}}")


def board_link(title: str, uid: str) -> build.DashboardLink:
    return build.DashboardLink(title).url(board_url(uid))


def header_links() -> list[build.DashboardLink]:
    """The other dashboards, found by their tag."""
    return [build.DashboardLink("Gradvane").type(dashboard.DashboardLinkType.DASHBOARDS).tags([TAG])
            .as_dropdown(True).keep_time(True).include_vars(True).icon("external link")]
