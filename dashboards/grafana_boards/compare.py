"""Several runs, step by step: which one learns better, and which is faster?"""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana_boards.curves import OF_RUN, CurveLook, by_step, of_runs, rate_of_runs
from grafana_boards.house import COMPARE, RED
from grafana_boards.layout import Board, Row
from grafana_boards.panels import Sized, Step
from grafana_boards.promql import by
from grafana_boards.tables import Column, table


def latest(metric: str, operation: str = "max") -> str:
    """What each run had last in the range: one that has ended long ago has its row, too."""
    return by("run", operation, f"last_over_time({of_runs(metric)}[$__range])")


def over_steps(metric: str) -> str:
    """A counter's growth per step over the range."""
    grown, steps = (by("run", "sum", f"increase({of_runs(each)}[$__range])")
                    for each in (metric, "gradvane_step_duration_seconds_count"))
    return f"{grown}\n/ ({steps} > 0)"


def mean_step() -> str:
    return (f"{by('run', 'sum', rate_of_runs('gradvane_step_duration_seconds_sum'))}\n"
            f"/ ({by('run', 'sum', rate_of_runs('gradvane_step_duration_seconds_count'))} > 0)")


def side_by_side() -> Sized:
    return table(
        "Runs side by side",
        "What each run had last in this range, its mean step time, and its incidents of all classes, of the rank that "
        "has most. Compare losses at the same step, in the curves below: the last ones are of different steps. The "
        "run leads to its overview.",
        [("run", "Run")],
        [Column("Step", latest("gradvane_run_step"), units.LocaleFormat, 0),
         Column("Ranks", by("run", "count", f"last_over_time({of_runs('gradvane_run_info')}[$__range])"),
                units.Short, 0),
         Column("Loss", latest("gradvane_loss", "avg"), units.Short, 3),
         Column("Norm", latest("gradvane_grad_norm"), units.Short, 3),
         Column("Learning rate", latest("gradvane_learning_rate"), units.ScientificNotation, 2),
         Column("Step time", over_steps("gradvane_step_duration_seconds_sum"), units.Seconds),
         Column("Incidents", by("run", "sum", "max by (run, class) (last_over_time("
                                f"{of_runs('gradvane_incidents_total')}[$__range]))"), units.Short, 0,
                steps=(Step(1, RED),))],
        sort="Loss", descending=False, width=24, height=6)


def learning() -> Row:
    return Row("Which run learns better?", (
        side_by_side(),
        by_step("Loss by step", "Mean over the ranks. The lower curve learns more from a step; runs of another batch "
                "size see more or less data in it. A curve that goes back in steps was resumed from a checkpoint.",
                units.Short, by(OF_RUN, "avg", of_runs("gradvane_loss")),
                CurveLook(runbooks=("loss-diverging", "loss-spike"))),
        by_step("Gradient norm by step", "Largest of the ranks, before clipping. The run that rises while the other "
                "falls is on its way to break.", units.Short, by(OF_RUN, "max", of_runs("gradvane_grad_norm")),
                CurveLook(logarithmic=True, runbooks=("gradient-norm-exploding",))),
    ))


def schedule() -> Row:
    return Row("How far does a step go?", (
        by_step("Learning rate by step", "Largest of the parameter groups. Curves that differ explain those above: "
                "compare runs of the same schedule.", units.ScientificNotation,
                by("run", "max", of_runs("gradvane_learning_rate")), CurveLook(height=8)),
        by_step("Update ratio by step", "How far a step moves the weights, against how large they are; mean over the "
                "ranks. About 0.001 is usual.", units.ScientificNotation,
                by(OF_RUN, "avg", of_runs("gradvane_update_ratio")),
                CurveLook(height=8, logarithmic=True, nothing="Weights were not read.")),
    ))


def speed() -> Row:
    return Row("Which run is faster?", (
        by_step("Step time by step", "Mean over the ranks. A step at which it grows in each run is the code's or the "
                "data's; one in a single run is its machine's.", units.Seconds, mean_step(),
                CurveLook(height=8)),
        by_step("Tokens per second by step", "All ranks together, as the loop counts them. Runs of different batch "
                "sizes are compared by this, and not by their step time.", units.Short,
                by("run", "sum", rate_of_runs("gradvane_tokens_total")),
                CurveLook(height=8, nothing="Tokens are not counted.")),
    ))


def board() -> Board:
    return Board(COMPARE, "Several runs by their steps: which one learns better, and which one is faster?",
                 (learning(), schedule(), speed()), many_runs=True)
