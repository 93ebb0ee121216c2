"""The ranks side by side: which one is different?"""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana_boards.house import FLEET, RED, YELLOW
from grafana_boards.layout import Board, Row
from grafana_boards.panels import Look, Sized, Step, graph, tile, timeline
from grafana_boards.promql import by, each_rank, mean_step_of_rank, per_step_of_rank, rate, series
from grafana_boards.promql import share_of_step_time_of_rank, state_code
from grafana_boards.queries import Query
from grafana_boards.stability import RUN_STATES
from grafana_boards.tables import Column, table

RANK = "rank, instance"


def latest(metric: str, *matchers: str) -> str:
    return by(RANK, "max", series(metric, *matchers))


def answers() -> str:
    """1 or 0 for each target that was one of these processes in the range. Of others nothing is known here."""
    return ('up{job=~"$job",instance=~"$instance"}\nand on (job, instance) last_over_time('
            + series("gradvane_run_info") + "[$__range])")


def data_phase() -> str:
    return per_step_of_rank("gradvane_phase_seconds_total", 'phase="data"')


def data_of_rank() -> str:
    return (by(RANK, "sum", rate("gradvane_phase_seconds_total", 'phase="data"'))
            + "\n/ (" + by(RANK, "sum", rate("gradvane_steps_total")) + " > 0)")


def own_of_rank() -> str:
    """Time of a step in which the rank does not wait for the others."""
    waits = by(RANK, "sum", rate("gradvane_rank_wait_seconds_total"))
    steps = f"({by(RANK, 'sum', rate('gradvane_steps_total'))} > 0)"
    return f"(({mean_step_of_rank()})\n- {waits}\n/ {steps})"


def behind() -> str:
    """How much a rank adds to each step, as a share of the median rank's step: 0.2 is a fifth. Its steps take longer,
    or, where ranks wait for each other and all steps take the same time, its data phase or its own work does."""
    mean, data, own = mean_step_of_rank(), data_of_rank(), own_of_rank()

    def added(seconds: str, way: str) -> str:
        share = (f"(({seconds}) - on () group_left () quantile(0.5, {seconds}))"
                 f"\n/ on () group_left () quantile(0.5, {mean})")
        return f'label_replace({share}, "way", "{way}", "", "")'

    return by(RANK, "max", f"{added(mean, 'step')}\nor {added(data, 'data')}\nor {added(own, 'own')}")


def side_by_side() -> Sized:
    return table(
        "Ranks side by side",
        "One row for each process; first the one that is furthest behind the median rank, in its step time, its data "
        "phase or its own work. Look for the row that differs: a longer data phase, or less time in host syncs or "
        "waiting for ranks than the others, is a straggler; another loss or norm is another model. The instance leads to the agent's own page, the rank to its overview.",
        [("rank", "Rank", 60), ("instance", "Instance", 130)],
        [Column("State", state_code(RANK), units.NoUnit, states=RUN_STATES),
         Column("Step", latest("gradvane_run_step"), units.LocaleFormat, 0),
         Column("Step time", mean_step_of_rank(), units.Seconds),
         Column("Behind", behind(), units.PercentUnit, 1, steps=(Step(0.1, YELLOW), Step(0.25, RED))),
         Column("Data phase", data_of_rank(), units.Seconds),
         Column("In syncs", share_of_step_time_of_rank("gradvane_host_sync_seconds_total",
                                                               'origin="training"'), units.PercentUnit, 1),
         Column("Waits for ranks", share_of_step_time_of_rank("gradvane_rank_wait_seconds_total"), units.PercentUnit, 1),
         Column("Loss", latest("gradvane_loss"), units.Short, 3),
         Column("Norm", latest("gradvane_grad_norm"), units.Short, 3),
         Column("Incidents", by(RANK, "sum", series("gradvane_incidents_open")), units.Short, 0,
                steps=(Step(1, RED),)),
         Column("Last step", f"time() - {by(RANK, 'min', series('gradvane_last_step_timestamp_seconds'))}",
                units.Seconds, 0),
         Column("On device", latest("gradvane_device_memory_allocated_bytes"), units.BytesIEC, 1),
         Column("Resident", latest("gradvane_process_resident_memory_bytes"), units.BytesIEC, 1),
         Column("Gradvane", share_of_step_time_of_rank("gradvane_agent_seconds_total", 'where="hooks"'),
                units.PercentUnit, 2)],
        sort="Behind", width=24, height=8, runbooks=("straggler-rank",))


def health() -> Row:
    return Row("Which rank is different?", (
        tile("Ranks that report", "Processes that Prometheus has scraped.", units.Short,
             Query(f"count({series('gradvane_run_info')})", now=True), width=4, runbooks=("training-target-down",)),
        tile("Targets that do not answer", "Addresses at which a process of this run was in this range, and that "
             "Prometheus cannot scrape now.", units.Short, Query(f"count(({answers()}) == 0) or vector(0)", now=True), "green",
             (Step(1, RED),), decimals=0, width=4, runbooks=("training-target-down",)),
        tile("Steps between first and last", "Distance of the rank that is furthest from the one that is least far. "
             "Ranks that wait for each other are at most a step or a scrape apart.", units.Short,
             Query(f"max({series('gradvane_run_step')}) - min({series('gradvane_run_step')})", now=True), decimals=0,
             width=4),
        tile("Behind the median, worst rank", "How much it adds to each step, in its step time, its data phase or its own "
             "work. From a quarter on, for ten minutes, an alert fires.", units.PercentUnit, Query(f"max({behind()})", now=True), "green",
             (Step(0.1, YELLOW), Step(0.25, RED)), decimals=1, width=4, runbooks=("straggler-rank",)),
        tile("Data phase, worst over median", "Seconds in a step that the slowest loader takes more than the median "
             "one. Ranks that join their gradients all wait for it.", units.Seconds,
             Query(f"max({data_phase()}) - quantile(0.5, {data_phase()})", now=True), width=4,
             nothing="no phases are marked", runbooks=("straggler-rank",)),
        tile("Tokens per second", "All ranks together.", units.Short,
             Query(f"sum({rate('gradvane_tokens_total')})"), decimals=1, width=4, nothing="not counted"),
        side_by_side(),
        timeline("State of each rank", "What each process says of itself. A strip that ends was not scraped any "
                 "more.", [Query(state_code("rank, instance"), "rank {{rank}}")], RUN_STATES, height=6,
                 runbooks=("training-target-down", "training-stalled")),
    ))


def speed() -> Row:
    return Row("Speed", (
        graph("Step time of each rank", "Mean. Ranks that join their gradients each step have the same one: look at "
              "the three beside it then.", units.Seconds, [Query(mean_step_of_rank(), "rank {{rank}}")],
              Look(width=6, from_zero=True, runbooks=("straggler-rank",))),
        graph("Data phase of each rank", "Seconds per step. The line above the "
              "others is the rank that all of them wait for.", units.Seconds,
              [Query(data_phase(), "rank {{rank}}")], Look(width=6, from_zero=True, has_page=False,
                                                           nothing="No phases are marked.")),
        graph("Blocked in host syncs", "Share of the step time. The rank that waits least is the one that the others "
              "wait for.", units.PercentUnit,
              [Query(share_of_step_time_of_rank("gradvane_host_sync_seconds_total", 'origin="training"'),
                     "rank {{rank}}")],
              Look(width=6, from_zero=True, nothing="Host syncs are not counted: no GPU, or no CUPTI.")),
        graph("Waiting for other ranks", "Share of the step time: for the reduction of gradients, and where ranks "
              "agree. The rank that waits least is the one that the others wait for.", units.PercentUnit,
              [Query(share_of_step_time_of_rank("gradvane_rank_wait_seconds_total"), "rank {{rank}}")],
              Look(width=6, from_zero=True, nothing="No wait was seen.", runbooks=("straggler-rank",))),
        graph("Behind the median rank", "0.25 is a quarter of the median rank's step, in step time, data phase or own work.",
              units.PercentUnit, [Query(behind(), "rank {{rank}}")], Look(width=8, at_least=0.25)),
        graph("Steps behind the first", "Steps that each rank has made less than the one that is furthest, as of "
              "their scrapes. A line that climbs: this rank hangs.", units.Short,
              [Query(f"max({series('gradvane_run_step')}) - on () group_right () {latest('gradvane_run_step')}",
                     "rank {{rank}}")],
              Look(width=8, from_zero=True, at_least=2, runbooks=("training-stalled",))),
        graph("Scrapes that answered", "1: the target answered. Gaps and zeros here are gaps in all the others, and "
              "not the training's fault.", units.Short,
              [Query(answers(), "{{instance}}")],
              Look(width=8, from_zero=True, most=1, runbooks=("training-target-down",))),
    ))


def sameness() -> Row:
    return Row("Do they train the same model?", (
        graph("Loss of each rank", "Different data, so close to each other, not equal. One that parts has other "
              "data, or other weights.", units.Short,
              [Query(each_rank("gradvane_loss"), "rank {{whose}}")],
              Look(width=8)),
        graph("Gradient norm of each rank", "Equal where gradients are joined before the optimizer. One that parts "
              "does not take part.", units.Short,
              [Query(each_rank("gradvane_grad_norm"), "rank {{whose}}")],
              Look(width=8, logarithmic=True)),
        graph("Weight norm of each rank", "Equal for replicas. Ranks that part no longer train the same model.",
              units.Short, [Query(each_rank("gradvane_weight_norm"), "rank {{whose}}")],
              Look(width=8, nothing="Weights were not read.")),
    ), collapsed=True)


def memory() -> Row:
    return Row("Memory", (
        graph("Device memory of each rank", "Held by tensors. One far above the others runs out first.",
              units.BytesIEC, [Query(series("gradvane_device_memory_allocated_bytes"), "rank {{rank}}")],
              Look(from_zero=True, nothing="No device.")),
        graph("Resident memory of each rank", "Of each process on its host.", units.BytesIEC,
              [Query(series("gradvane_process_resident_memory_bytes"), "rank {{rank}}")], Look(from_zero=True)),
    ), collapsed=True)


def board() -> Board:
    return Board(FLEET, "The ranks of a run side by side: which one is different?",
                 (health(), speed(), sameness(), memory()))
