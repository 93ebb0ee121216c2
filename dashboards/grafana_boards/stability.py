"""When was the run unstable, and what was first?"""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana_boards.house import BLUE, GREEN, GREY, ORANGE, RED, STABILITY
from grafana_boards.layout import Board, Row
from grafana_boards.overview import ALL_OF_WHERE, FINITE, finite_strip, incidents_table
from grafana_boards.panels import Look, Sized, State, bars, graph, timeline
from grafana_boards.promql import by, each_rank, happened, increase, of_run, per_step_of_rank, rate, series
from grafana_boards.promql import state_code
from grafana_boards.queries import Query

RUN_STATES = (State(1, "starting", GREY), State(2, "running", GREEN), State(3, "stalled", RED),
              State(4, "finished", BLUE), State(5, "failed", RED))
INCIDENT_STATES = (State(0, "none", GREEN), State(1, "opened and closed", ORANGE), State(2, "open", RED))
SKIPPED = (State(0, "all steps taken", GREEN), State(1, "some skipped", ORANGE))


def incident_strip() -> Sized:
    opened = by("class", "max", increase("gradvane_incidents_total")) + " > bool 0"
    open_now = by("class", "max", series("gradvane_incidents_open")) + " > bool 0"
    return timeline(
        "Incidents by class",
        "Red while an incident is open on any rank, orange where one came and went between two scrapes. Read the "
        "order from left to right: the first row that turns red is the cause to look at.",
        [Query(f"clamp_max(2 * ({open_now}) + ({opened}), 2)", "{{class}}")], INCIDENT_STATES, height=14)


def when() -> Row:
    return Row("When was it unstable?", (
        timeline("State of each rank", "What the process says of itself. A strip that ends: it was not scraped any "
                 "more, because it was gone or out of reach.",
                 [Query(state_code("rank, instance"), "rank {{rank}}")], RUN_STATES, height=6,
                 runbooks=("training-stalled", "training-run-failed", "training-target-down")),
        finite_strip("site, rank", "{{site}}, rank {{rank}}", 10),
        timeline("Groups with values that were not finite",
                 "Which parameter group held NaN or infinity in its gradients or weights, on any rank; loss is the "
                 "loss, unknown a step whose record was lost. Overflow that a gradient scaler handled is left out.",
                 [Query(by("group", "max", happened("gradvane_nonfinite_steps_total")), "{{group}}")],
                 FINITE, height=9, runbooks=("training-non-finite",)),
        incident_strip(),
        timeline("Steps without an update", "Orange where steps left the weights as they were: overflow that the "
                 "gradient scaler skips, a loop that skips by itself. Some overflow is a scaler's daily business; an "
                 "unbroken strip is not.",
                 [Query(by("reason", "max", increase("gradvane_skipped_steps_total")) + " > bool 0", "{{reason}}")],
                 SKIPPED, height=5, runbooks=("amp-overflow-streak", "training-steps-skipped")),
        timeline("Alerts", "What Prometheus told of this run. Empty means that nothing fired, or that no rules are "
                 "loaded.",
                 [Query(by("alertname", "max", of_run("ALERTS", 'alertstate="firing"')), "{{alertname}}")], (State(1, "fires", RED),), height=6,
                 nothing="No alert fired, or no rules are loaded."),
    ))


def what() -> Row:
    worst = by("group, site", "max", "sum without (kind) (" + series("gradvane_nonfinite_steps_total") + ")")
    return Row("What happened", (
        incidents_table(ALL_OF_WHERE, 24, 8),
        bars("Incidents so far", "Since each process started, on the rank that has most; one that lasts for many steps "
             "counts once. Many of one class: the same thing happens again and again.", units.Short,
             Query(by("class", "max", series("gradvane_incidents_total")) + " > 0", "{{class}}", now=True),
             width=8, colour="orange", decimals=0, nothing="No incident since the processes started."),
        graph("Elements that were not finite", "How many, by where and what. Infinity in gradients first: something "
              "overflowed; NaN first: 0/0, or a square root or logarithm of what it should not see.", units.Short,
              [Query(by("site, kind", "sum", increase("gradvane_nonfinite_elements_total")) + " > 0",
                     "{{site}} {{kind}}")],
              Look(width=8, height=9, bars=True, stacked=True, from_zero=True, has_page=False,
                   nothing="All values were finite.")),
        bars("Bad steps of the worst groups", "Since each process started, of the worst rank. One group alone: look "
             "into it. All of them: the loss was bad first.", units.Short,
             Query(f"topk($topk, {worst} > 0)", "{{group}} ({{site}})", now=True), width=8, colour="red", decimals=0,
             nothing="All steps were finite.", runbooks=("training-non-finite",)),
    ))


def scaling() -> Row:
    return Row("Loss scale and skipped steps", (
        graph("Loss scale", "Of the gradient scaler. Stairs downwards without a recovery end at 1: what overflows "
              "is not the scale's fault any more.", units.Short,
              [Query(each_rank("gradvane_loss_scale"), "rank {{whose}}")],
              Look(width=8, logarithmic=True, runbooks=("amp-overflow-streak",), nothing="No gradient scaler.")),
        graph("Steps skipped for overflow", "For each step that was taken or skipped. Above one in a hundred for "
              "long the scaler grows too fast, or the model overflows by itself.", units.PercentUnit,
              [Query(f"{by('rank', 'sum', increase('gradvane_amp_overflow_steps_total'))}\n"
                     f"/ on (rank) {by('rank', 'sum', increase('gradvane_steps_total') + ' > 0')}", "rank {{rank}}")],
              Look(width=8, from_zero=True, at_least=0.01, has_page=False)),
        graph("Skipped steps by reason", "Steps that left the weights as they were, for each second of all ranks. "
              "What the loop skips costs as much time as a step that is taken.", units.Short,
              [Query(by("reason", "sum", rate("gradvane_skipped_steps_total")), "{{reason}}")],
              Look(width=8, stacked=True, from_zero=True, has_page=False, runbooks=("training-steps-skipped",))),
    ))


def snapshots() -> Row:
    nothing = "No snapshots of the training's state."
    return Row("Snapshots and rollbacks", (
        graph("Age of the newest snapshot", "What a rollback would lose. It falls with each new snapshot. If it only "
              "rises, snapshots are refused or none is due.", units.Seconds,
              [Query(each_rank("gradvane_snapshot_age_seconds"), "rank {{whose}}")],
              Look(width=8, from_zero=True, has_page=False, nothing=nothing)),
        graph("Snapshots by result", "`committed`, or the reason why one was refused.", units.Short,
              [Query(by("result", "sum", increase("gradvane_snapshots_total")), "{{result}}")],
              Look(width=8, from_zero=True, at_least=1, has_page=False, nothing=nothing, colours={"committed": GREEN},
                   runbooks=("snapshots-refused",))),
        graph("Rollbacks by reason", "Times that the training went back to a snapshot.", units.Short,
              [Query(by("reason", "sum", increase("gradvane_rollbacks_total")), "{{reason}}")],
              Look(width=8, from_zero=True, at_least=1, has_page=False, nothing=nothing,
                   runbooks=("training-rolled-back",))),
        graph("Ranks that decide together", "1: with `ranks: agree`, ranks skip, stop or go back together. 0: this "
              "one decides alone now.", units.Short,
              [Query(each_rank("gradvane_ranks_agree"), "rank {{whose}}")],
              Look(width=8, from_zero=True, has_page=False, nothing="Ranks were never to decide together.",
                   runbooks=("rank-agreement-lost",))),
    ), collapsed=True)


def watched() -> Row:
    return Row("Is it watched at all?", (
        graph("Reads for each step", "1: looked at in every step. 0: never, so silence says nothing there. Weights "
              "are read every `weight_every` steps.", units.Short,
              [Query(per_step_of_rank("gradvane_site_reads_total", labels="rank, site"), "{{site}}, rank {{rank}}")],
              Look(width=8, from_zero=True, has_page=False)),
        graph("Recordings", "Files with the last steps, written when an incident opens: `gradvane replay` reads "
              "them. Failed ones: no room or no right to write.", units.Short,
              [Query(by("result", "sum", increase("gradvane_recordings_total")), "{{result}}")],
              Look(width=8, from_zero=True, at_least=1, has_page=False, colours={"ok": GREEN, "failed": RED})),
        graph("Alerts pushed", "Handed to Alertmanager directly, where `alert_push` asks for it. Failed ones: "
              "nobody was told that way.", units.Short,
              [Query(by("result", "sum", increase("gradvane_alert_pushes_total")), "{{result}}")],
              Look(width=8, from_zero=True, at_least=1, has_page=False, colours={"ok": GREEN, "failed": RED})),
    ), collapsed=True)


def board() -> Board:
    return Board(STABILITY,
                 "When was the run unstable, what was first, and was anybody told?",
                 (when(), what(), scaling(), snapshots(), watched()), with_topk=True)
