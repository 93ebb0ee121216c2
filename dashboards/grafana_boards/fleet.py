"""The ranks side by side: which one is different?"""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana_boards.house import FLEET, RED, YELLOW
from grafana_boards.layout import Board, Row
from grafana_boards.overview import ranks_that_report
from grafana_boards.panels import Look, Sized, Step, graph, tile, timeline
from grafana_boards.promql import FEW, by, each_rank, few, of_optimizers, rate, series, state_code
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


def steps_so_far() -> str:
    """0 for a process that has made no step."""
    return f"{latest('gradvane_run_step')} or on (rank, instance) 0 * {state_code(RANK)}"


def recorded(rule: str) -> str:
    """What a recording rule has of each rank. Rates of a thousand ranks, at each point of a chart, would take long."""
    return by(RANK, "max", series(f"run_rank:{rule}"))


STEP_TIME = recorded("gradvane_step_duration_seconds:mean5m")
DATA = recorded("gradvane_data_phase_seconds:per_step5m")
BEHIND = recorded("gradvane_step:behind_ratio5m")
SYNCS = recorded("gradvane_host_sync_seconds:ratio_rate5m")
WAITS = recorded("gradvane_rank_wait_seconds:ratio_rate5m")
HOOKS = recorded("gradvane_agent_hooks_seconds:ratio_rate5m")
NO_RULES = "Load the recording rules."


def of_ranks(title: str, says: str, unit: str, expression: str, look: Look, furthest: str = "up") -> Sized:
    """A chart with a line for each of a few ranks, and one for the median of all."""
    which = {"up": "highest", "down": "lowest"}[furthest]
    return graph(title, f"{says} At most {FEW} ranks, those that are {which} on the mean of the range that is shown; "
                        "the median is that of all ranks.", unit,
                 [Query(few(expression, furthest), "rank {{rank}}"),
                  Query(f"quantile(0.5, {expression})", "median")], look)


def of_replicas(title: str, says: str, metric: str, look: Look) -> Sized:
    """The same of what ranks with the same weights have in common, for each optimizer."""
    each = each_rank(metric)
    return graph(title, f"{says} At most {FEW} ranks, those that are furthest from the median of all ranks on the mean of "
                        "the range that is shown.", units.Short,
                 [Query(few(each, "apart"), "rank {{whose}}"),
                  Query(of_optimizers("median", f"quantile by (optimizer) (0.5, {each})"), "{{whose}}")], look)


def side_by_side() -> Sized:
    return table(
        "Ranks side by side",
        "One row for each process; first the one that is furthest behind the median rank, in its step time, its data "
        "phase or its own work. Look for the row that differs: a longer data phase, or less time in host syncs or "
        "waiting for ranks than the others, is a straggler; another loss or norm is another model. The instance leads to the agent's own page, the rank to its overview.",
        [("rank", "Rank", 60), ("instance", "Instance", 130)],
        [Column("State", state_code(RANK), units.NoUnit, states=RUN_STATES),
         Column("Step", latest("gradvane_run_step"), units.LocaleFormat, 0),
         Column("Step time", STEP_TIME, units.Seconds),
         Column("Behind", BEHIND, units.PercentUnit, 1, steps=(Step(0.1, YELLOW), Step(0.25, RED))),
         Column("Data phase", DATA, units.Seconds),
         Column("In syncs", SYNCS, units.PercentUnit, 1),
         Column("Waits for ranks", WAITS, units.PercentUnit, 1),
         Column("Loss", latest("gradvane_loss"), units.Short, 3),
         Column("Norm", latest("gradvane_grad_norm"), units.Short, 3),
         Column("Incidents", by(RANK, "sum", series("gradvane_incidents_open")), units.Short, 0,
                steps=(Step(1, RED),)),
         Column("Last step", f"time() - {by(RANK, 'min', series('gradvane_last_step_timestamp_seconds'))}",
                units.Seconds, 0),
         Column("On device", latest("gradvane_device_memory_allocated_bytes"), units.BytesIEC, 1),
         Column("Resident", latest("gradvane_process_resident_memory_bytes"), units.BytesIEC, 1),
         Column("Gradvane", HOOKS,
                units.PercentUnit, 2)],
        sort="Behind", width=24, height=8, runbooks=("straggler-rank",))


def health() -> Row:
    return Row("Which rank is different?", (
        ranks_that_report(width=4),
        tile("Targets that do not answer", "Addresses at which a process of this run was in this range, and that "
             "Prometheus cannot scrape now.", units.Short, Query(f"count(({answers()}) == 0) or vector(0)", now=True), "green",
             (Step(1, RED),), decimals=0, width=4, runbooks=("training-target-down",)),
        tile("Steps between first and last", "Distance of the rank that is furthest from the one that is least far. "
             "Ranks that wait for each other are at most a step or a scrape apart.", units.Short,
             Query(f"max({series('gradvane_run_step')}) - min({series('gradvane_run_step')})", now=True), decimals=0,
             width=4),
        tile("Behind the median, worst rank", "How much it adds to each step, in its step time, its data phase or its own "
             "work. From a quarter on, for ten minutes, an alert fires.", units.PercentUnit, Query(f"max({BEHIND})", now=True), "green",
             (Step(0.1, YELLOW), Step(0.25, RED)), decimals=1, width=4, runbooks=("straggler-rank",)),
        tile("Data phase, worst over median", "Seconds in a step that the slowest loader takes more than the median "
             "one. Ranks that join their gradients all wait for it.", units.Seconds,
             Query(f"max({DATA}) - quantile(0.5, {DATA})", now=True), width=4,
             nothing="no phases, or no rules", runbooks=("straggler-rank",)),
        tile("Tokens per second", "All ranks together.", units.Short,
             Query(f"sum({rate('gradvane_tokens_total')})"), decimals=1, width=4, nothing="not counted"),
        side_by_side(),
        timeline("State of each rank", f"What each process says of itself; of more than {FEW} ranks those that have made "
                 "the fewest steps. A strip that ends was not scraped any more.",
                 [Query(f"{state_code(RANK)}\nand on (rank, instance) "
                        f"bottomk({FEW}, max_over_time(({steps_so_far()})[$__range:$__interval] @ end()))",
                        "rank {{rank}}")], RUN_STATES, height=6,
                 runbooks=("training-target-down", "training-stalled")),
    ))


def speed() -> Row:
    missing = f"max({series('gradvane_run_step')}) - on () group_right () {latest('gradvane_run_step')}"
    return Row("Speed", (
        of_ranks("Step time of each rank", "Mean. Ranks that join their gradients each step have the same one: look at "
                 "the three next to it then.", units.Seconds, STEP_TIME,
                 Look(width=6, from_zero=True, nothing=NO_RULES, runbooks=("straggler-rank",))),
        of_ranks("Data phase of each rank", "Seconds per step. The line above the others is the rank that all of them "
                 "wait for.", units.Seconds, DATA,
                 Look(width=6, from_zero=True, has_page=False, nothing="No phases are marked, or the recording rules are not loaded.")),
        of_ranks("Blocked in host syncs", "Share of the step time. The rank that waits least is the one that the others "
                 "wait for.", units.PercentUnit, SYNCS,
                 Look(width=6, from_zero=True, nothing="Host syncs are not counted (no GPU, or no CUPTI), or the recording rules are not loaded."), "down"),
        of_ranks("Waiting for other ranks", "Share of the step time: for the reduction of gradients, and where ranks "
                 "agree. The rank that waits least is the one that the others wait for.", units.PercentUnit, WAITS,
                 Look(width=6, from_zero=True, nothing="No wait was seen, or the recording rules are not loaded.", runbooks=("straggler-rank",)), "down"),
        of_ranks("Behind the median rank", "0.25 is a quarter of the median rank's step, in step time, data phase or own "
                 "work.", units.PercentUnit, BEHIND, Look(width=8, at_least=0.25, nothing=NO_RULES)),
        of_ranks("Steps behind the first", "Steps that each rank has made less than the one that is furthest, as of "
                 "their scrapes. A line that climbs: this rank hangs.", units.Short, missing,
                 Look(width=8, from_zero=True, at_least=2, runbooks=("training-stalled",))),
        graph("Scrapes that answered", f"1: the target answered. Gaps and zeros here are gaps in all the others, and "
              f"not the training's fault. At most {FEW} targets, those that answered least.", units.Short,
              [Query(f"({answers()})\nand on (instance) "
                     f"bottomk({FEW}, avg_over_time(({answers()})[$__range:$__interval] @ end()))", "{{instance}}")],
              Look(width=8, from_zero=True, most=1, runbooks=("training-target-down",))),
    ))


def sameness() -> Row:
    return Row("Do they train the same model?", (
        of_replicas("Loss of each rank", "Different data, so close to each other, not equal. One that parts has other data, "
                    "or other weights.", "gradvane_loss", Look(width=8)),
        of_replicas("Gradient norm of each rank", "Equal where gradients are joined before the optimizer. One that parts "
                    "does not take part.", "gradvane_grad_norm", Look(width=8, logarithmic=True)),
        of_replicas("Weight norm of each rank", "Equal for replicas. Ranks that part no longer train the same model.",
                    "gradvane_weight_norm", Look(width=8, nothing="Weights were not read.")),
    ), collapsed=True)


def memory() -> Row:
    return Row("Memory", (
        of_ranks("Device memory of each rank", "Held by tensors. One far above the others runs out first.",
                 units.BytesIEC, series("gradvane_device_memory_allocated_bytes"),
                 Look(from_zero=True, nothing="No device.")),
        of_ranks("Resident memory of each rank", "Of each process on its host.", units.BytesIEC,
                 series("gradvane_process_resident_memory_bytes"), Look(from_zero=True)),
    ), collapsed=True)


def board() -> Board:
    return Board(FLEET, "The ranks of a run side by side: which one is different?",
                 (health(), speed(), sameness(), memory()))
