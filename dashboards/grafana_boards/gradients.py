"""Which layer moves?"""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana_boards.house import BLUE, GREEN, GRADIENTS, GREY, ORANGE, PURPLE, RED, YELLOW
from grafana_boards.layout import Board, Row
from grafana_boards.panels import Look, bars, graph, heat
from grafana_boards.promql import by, each_optimizer, each_rank, series, usual
from grafana_boards.queries import Query
from grafana_boards.tables import Column, table

IN_GROUP = 'group=~"$group"'
PARAM_COLOURS = {"finite": GREEN, "nonfinite": RED, "zero": YELLOW, "missing": ORANGE, "frozen": GREY, "empty": BLUE,
                 "unsupported": PURPLE}


def of_group(metric: str) -> str:
    return series(metric, IN_GROUP)


def against_usual(metric: str) -> str:
    """The value over the median of the range, largest of the ranks."""
    now = by("group", "max", of_group(metric))
    return f"{now} / ({by('group', 'max', usual(of_group(metric)))} > 0)"


def movers(expression: str) -> str:
    """Of the groups that differ most from their own past, up or down."""
    ratio = against_usual("gradvane_group_grad_norm")
    return f"{expression}\nand on (group) topk($topk, abs(log2(({ratio}) > 0)))"


def which_group() -> Row:
    norm = "gradvane_group_grad_norm"
    return Row("Which group moves?", (
        heat("Gradient norm of each group",
             "Power of ten of the norm: -3 is 0.001; the largest of the ranks. A column that changes colour is the "
             "whole model; a row that does is one layer. An empty cell is a norm of 0, or no step.",
             units.NoUnit, Query(f"log10({by('group', 'max', of_group(norm))} > 0)", "{{group}}"), "Viridis"),
        heat("Against its own median of this range",
             "Power of two: 3, red, is eight times the group's own median; -3, blue, an eighth. It shows what moved, "
             "however large the group is. The group that leaves the middle first is where to look.",
             units.NoUnit, Query(f"log2(({against_usual(norm)}) > 0)", "{{group}}"), "RdYlBu", -5, 5),
        table("Top movers", "The groups whose norm differs most from its own median of this range, up or down. With "
              "one far ahead of the others begin there; with all alike it is the learning rate or the data.",
              [("group", "Group")],
              [Column("Times its median", movers(against_usual(norm)), units.Short, 2),
               Column("Norm now", movers(by("group", "max", of_group(norm))), units.Short, 4),
               Column("Median", movers(by("group", "max", usual(of_group(norm)))), units.Short, 4)],
              sort="Times its median", width=12, height=9,
              runbooks=("gradient-norm-exploding", "gradients-vanishing")),
        bars("Update ratio of each group", "How far the latest measured step moved the group's weights, against how "
             "large they are; the largest ones. About 0.001 is usual. One that is far above the others learns too "
             "fast, one at 0 does not learn.", units.ScientificNotation,
             Query(f"topk($topk, {by('group', 'max', of_group('gradvane_group_update_ratio'))})", "{{group}}",
                   now=True), decimals=1, nothing="Weights were not read."),
    ))


def norms() -> Row:
    return Row("Norms", (
        graph("Gradient norm by group", "Largest of the ranks, of the groups that are largest now. A line that "
              "leaves the bundle is one layer.", units.ScientificNotation,
              [Query(f"{by('group', 'max', of_group('gradvane_group_grad_norm'))}\nand on (group) topk($topk, "
                     f"{by('group', 'max', at_end('gradvane_group_grad_norm'))})", "{{group}}")],
              Look(many=True, logarithmic=True, height=10, has_page=False, decimals=1)),
        graph("Largest gradient element by group", "Magnitude, of the groups where it is largest now. Far above the "
              "norm's usual size: a single element, often an embedding row or a loss weight.",
              units.ScientificNotation,
              [Query(f"{by('group', 'max', of_group('gradvane_group_grad_abs_max'))}\nand on (group) topk($topk, "
                     f"{by('group', 'max', at_end('gradvane_group_grad_abs_max'))})", "{{group}}")],
              Look(many=True, logarithmic=True, height=10, has_page=False, decimals=1)),
        graph("Gradient norm of each rank", "All parameters, before clipping. Ranks of data parallel training that "
              "differ after their gradients were joined no longer train the same model.", units.Short, [
                  Query(each_rank("gradvane_grad_norm"), "rank {{whose}}"),
                  Query(each_rank("gradvane_shard_grad_norm"), "shard of rank {{whose}}")],
              Look(width=8, logarithmic=True)),
        graph("Largest gradient element", "Magnitude, over all parameters of each rank. In fp16 trouble begins at "
              "65,504 over the loss scale.", units.ScientificNotation,
              [Query(each_rank("gradvane_grad_abs_max"), "rank {{whose}}")],
              Look(width=8, logarithmic=True, decimals=1)),
        graph("Mean gradient magnitude by group", "Over the finite elements. Unlike the norm it does not grow with the "
              "size of the group.", units.ScientificNotation,
              [Query(f"{by('group', 'max', of_group('gradvane_group_grad_abs_mean'))}\nand on (group) topk($topk, "
                     f"{by('group', 'max', at_end('gradvane_group_grad_abs_mean'))})", "{{group}}")],
              Look(many=True, logarithmic=True, height=10, has_page=False, decimals=1)),
        graph("Mean gradient magnitude", "Over all parameters of each rank.", units.ScientificNotation,
              [Query(each_rank("gradvane_grad_abs_mean"), "rank {{whose}}")],
              Look(width=12, logarithmic=True, decimals=1)),
        graph("Subnormal gradients by group", "Share of gradient elements so small that their dtype keeps only part of "
              "their digits. A share that grows in fp16 means that the loss scale is too small.", units.PercentUnit,
              [Query(f"{by('group', 'max', of_group('gradvane_group_grad_subnormal_ratio'))}\nand on (group) topk($topk, "
                     f"{by('group', 'max', at_end('gradvane_group_grad_subnormal_ratio'))})", "{{group}}")],
              Look(many=True, from_zero=True, height=10, has_page=False)),
        graph("Smallest nonzero gradient by group", "Smallest magnitude of an element that is not zero. fp16 has "
              "nothing between 0 and 6e-8 over the loss scale.", units.ScientificNotation,
              [Query(f"{by('group', 'min', of_group('gradvane_group_grad_abs_min_nonzero'))}\nand on (group) topk($topk, "
                     f"{by('group', 'max', at_end('gradvane_group_grad_norm'))})", "{{group}}")],
              Look(many=True, logarithmic=True, height=10, has_page=False, decimals=1)),
        graph("Subnormal gradients", "Share of gradient elements, over all parameters of each rank.",
              units.PercentUnit, [Query(each_rank("gradvane_grad_subnormal_ratio"), "rank {{whose}}")],
              Look(width=12, from_zero=True)),
        graph("Smallest nonzero gradient", "Over all parameters of each rank.", units.ScientificNotation,
              [Query(each_rank("gradvane_grad_abs_min_nonzero"), "rank {{whose}}")],
              Look(width=12, logarithmic=True, decimals=1)),
        graph("Parameters that vanish and explode", "How many have a gradient norm below or above the thresholds, "
              "most of the ranks. Half of them vanishing: the signal does not reach them.", units.Short, [
                  Query(each_optimizer("vanishing", "max", "gradvane_params_vanishing"), "{{whose}}"),
                  Query(each_optimizer("exploding", "max", "gradvane_params_exploding"), "{{whose}}")],
              Look(width=8, from_zero=True, has_page=False, runbooks=("gradients-vanishing",))),
    ))


def at_end(metric: str) -> str:
    """As it is at the end of the range, so that the same groups are shown all along."""
    return of_group(metric) + " @ end()"


def updates() -> Row:
    return Row("Weights and updates", (
        graph("Update ratio by group", "An estimate, in the steps that read weights. Compare it with 0.001; a group "
              "that stays apart wants a learning rate of its own.", units.ScientificNotation,
              [Query(by("group", "max", of_group("gradvane_group_update_ratio")), "{{group}}")],
              Look(many=True, logarithmic=True, height=10, has_page=False, decimals=1,
                   nothing="Weights were not read.")),
        graph("Weight norm by group", "Grows slowly and settles. A straight rise: weight decay is too weak, or the "
              "learning rate too high.", units.Short,
              [Query(by("group", "max", of_group("gradvane_group_weight_norm")), "{{group}}")],
              Look(many=True, logarithmic=True, height=10, has_page=False, nothing="Weights were not read.")),
        graph("Weight norm", "Of all weights, each rank. Replicas have the same one: ranks that part no longer train "
              "the same model.", units.Short,
              [Query(each_rank("gradvane_weight_norm"), "rank {{whose}}")],
              Look(nothing="Weights were not read.")),
        graph("Gradient health", "From 0 (bad) to 1. A score of many things at once: use it to find the time at "
              "which to look at the others.", units.Short,
              [Query(each_rank("gradvane_grad_health"), "rank {{whose}}")],
              Look(from_zero=True, most=1, runbooks=("gradient-health-low",))),
    ), collapsed=True)


def parameters() -> Row:
    return Row("Parameters and zeros", (
        graph("Parameters by their gradient", "In the latest step, of the rank with most. Missing ones were not part "
              "of the backward pass, zero ones were and learned nothing.", units.Short,
              [Query(by("state", "max", series("gradvane_params")), "{{state}}")],
              Look(width=8, stacked=True, from_zero=True, has_page=False, colours=PARAM_COLOURS)),
        graph("Zeros among the gradients", "Share of elements that are exactly 0. Usual for embeddings; a rise "
              "elsewhere: units that died.", units.PercentUnit,
              [Query(each_rank("gradvane_grad_zero_ratio"), "rank {{whose}}")],
              Look(width=8, from_zero=True, most=1)),
        graph("Zeros by group", "The same for each group, largest of the ranks. 1 for long: the group gets no "
              "gradient any more.", units.PercentUnit,
              [Query(by("group", "max", of_group("gradvane_group_grad_zero_ratio")), "{{group}}")],
              Look(width=8, many=True, from_zero=True, most=1, has_page=False, runbooks=("dead-parameter-group",))),
    ), collapsed=True)


def board() -> Board:
    return Board(GRADIENTS,
                 "Which layer moves, which one is dead, and does each learn as fast as it should?",
                 (which_group(), norms(), updates(), parameters()), with_group=True, with_topk=True)
