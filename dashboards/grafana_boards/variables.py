"""The variables above a dashboard, left to right: each narrows down what the next offers."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

from grafana_boards.house import SOURCE
from grafana_boards.promql import PLACE

INFO = "gradvane_run_info"


def all_of(values: build.QueryVariable, everyone: str = ".+") -> build.QueryVariable:
    """Many at once, all of them to begin with. `everyone` and not a list of them: new ones count at once."""
    everything = dashboard.VariableOption(selected=True, text=["All"], value=["$__all"])
    return values.multi(True).include_all(True).all_value(everyone).current(everything)


def asked(name: str, label: str, query: str, says: str,
          sort: dashboard.VariableSort = dashboard.VariableSort.NATURAL_ASC) -> build.QueryVariable:
    return (build.QueryVariable(name).label(label).description(says).datasource(SOURCE).query(query)
            .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(sort))


def runs(many: bool) -> build.QueryVariable:
    query = f'label_values({INFO}{{{PLACE},job=~"$job"}}, run)'
    if many:
        return asked("run", "Run", query, "The runs to compare.").multi(True)
    return asked("run", "Run", query, "One run at a time.")


Variable = build.DatasourceVariable | build.QueryVariable | build.CustomVariable


def variables(with_group: bool, with_topk: bool, many_runs: bool = False) -> list[Variable]:
    is_chosen = 'run=~"$run"' if many_runs else 'run="$run"'
    run = f'{PLACE},job=~"$job",{is_chosen}'
    found: list[Variable] = [
        build.DatasourceVariable("datasource").label("Data source").type("prometheus")
        .description("The Prometheus that scrapes the runs."),
        all_of(asked("cluster", "Cluster", f"label_values({INFO}, cluster)",
                     "Clusters, if scraping adds such a label."), everyone=".*"),
        all_of(asked("namespace", "Namespace", f'label_values({INFO}{{cluster=~"$cluster"}}, namespace)',
                     "Namespaces, if scraping adds such a label."), everyone=".*"),
        all_of(asked("job", "Job", f"label_values({INFO}{{{PLACE}}}, job)", "Scrape jobs that have runs.")),
        runs(many_runs),
        all_of(asked("rank", "Rank", f"label_values({INFO}{{{run}}}, rank)",
                     "Processes of the runs." if many_runs else "Processes of the run.")),
        all_of(asked("instance", "Instance", f'label_values({INFO}{{{run},rank=~"$rank"}}, instance)',
                     "Endpoints of those ranks. A process that came back may have another.")),
    ]
    if with_group:
        found.append(all_of(asked(
            "group", "Group", f'label_values(gradvane_group_grad_norm{{{run},rank=~"$rank"}}, group)',
            "Parameter groups.")))
    if with_topk:
        found.append(build.CustomVariable("topk").label("Top").values("5,10,20").description("Rows of tables and bars.")
                     .current(dashboard.VariableOption(selected=True, text="10", value="10")))
    return found
