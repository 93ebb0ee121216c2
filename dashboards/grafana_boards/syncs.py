"""Where does the CPU wait for the GPU, and what does that cost?"""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana_boards.house import GREEN, GREY, ORANGE, RED, SYNCS
from grafana_boards.layout import Board, Row
from grafana_boards.panels import Look, State, Step, bars, graph, tile, timeline
from grafana_boards.promql import by, increase, per_step, rate, series, share_of_step_time
from grafana_boards.promql import share_of_step_time_of_rank
from grafana_boards.queries import Query
from grafana_boards.tables import Column, table

OURS = 'origin="gradvane"'
TRAINING = 'origin="training"'
COVERED = 'state="covered"'
REJECTED = 'kind="rejected_in_capture"'
WAITED = 'kind!="rejected_in_capture"'
NOT_COUNTED = "Host syncs are not counted: no GPU, or no CUPTI. See Is it counted?"
COUNTED = (State(0, "not counted", GREY), State(1, "counted", GREEN))


def cost() -> Row:
    return Row("What do host syncs cost?", (
        tile("Host syncs per step", "Calls of the training that made the CPU wait, mean of the ranks. A few in a "
             "step are usual (a loss that is read); a number that grows with the model's depth is a loop that waits.",
             units.Short, Query(per_step("gradvane_host_syncs_total", TRAINING, WAITED)), decimals=2, width=4,
             runbooks=("host-sync-budget-exceeded",)),
        tile("Time blocked", "How long threads of the training were blocked in them, of the time that "
             "steps took. It is not all to be won: the GPU computes meanwhile.", units.PercentUnit,
             Query(share_of_step_time("gradvane_host_sync_seconds_total", TRAINING)), decimals=1, width=4),
        tile("Steps over the budget so far", "Since each process started, all ranks. 0 is good, and what a budget "
             "is for.", units.LocaleFormat,
             Query(f"sum({series('gradvane_sync_budget_breaches_total', TRAINING)})", now=True), GREEN,
             (Step(1, RED),), decimals=0, width=4, nothing="no budget is set",
             runbooks=("host-sync-budget-exceeded",)),
        tile("Gradvane's own, per step", "0 is what it promises, but in immediate mode, which waits once for each "
             "device and step.", units.Short, Query(per_step("gradvane_host_syncs_total", OURS, WAITED)), GREEN,
             (Step(0.001, ORANGE),), decimals=3, width=4),
        tile("Time that was counted", "Share of the run in which host syncs were counted at all. What happens in the "
             "rest is in none of these panels.", units.PercentUnit,
             Query(f"sum({series('gradvane_sync_coverage_seconds_total', COVERED)})\n"
                   f"/ (sum({series('gradvane_sync_coverage_seconds_total')}) > 0)", now=True), decimals=1, width=4),
        tile("Rejected in a capture", "Calls of this range that CUDA refused because a graph was being captured. "
             "They did not wait; each of them can break the capture.", units.Short,
             Query(f"sum({increase('gradvane_host_syncs_total', REJECTED, over='$__range')})", now=True), GREEN,
             (Step(0.5, ORANGE),), decimals=0, width=4),
        graph("Host syncs per step, by kind", "Mean of the ranks. d2h_read is .item(), .cpu(), an if on a tensor; "
              "async_copy_blocked a copy from memory that is not pinned.", units.Short,
              [Query(per_step("gradvane_host_syncs_total", TRAINING, WAITED, labels="kind"), "{{kind}}")],
              Look(stacked=True, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
        graph("Time blocked, by kind", "Of a second of steps, mean of the ranks. Many calls that cost nothing may "
              "stay; few that cost much are worth a look.", units.PercentUnit,
              [Query(f"{by('kind', 'sum', rate('gradvane_host_sync_seconds_total', TRAINING))}\n/ on () group_left () "
                     f"(sum({rate('gradvane_step_duration_seconds_sum')}) > 0)", "{{kind}}")],
              Look(stacked=True, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
    ))


def places() -> Row:
    time_lost = increase("gradvane_host_sync_location_seconds_total", over="$__range")
    calls = increase("gradvane_host_sync_location_total", over="$__range")
    steps = f"sum({increase('gradvane_steps_total', over='$__range')})"
    ranked = f"topk($topk, {by('location', 'sum', time_lost)} > 0)"
    return Row("Which line waits?", (
        table("Time lost by place in the code", "What this range spent in host syncs, by the line that asked, all "
              "ranks. Begin with the first; a line with many calls in a step is worth more than a long one that is "
              "called rarely. `other` is what has no series of its own.",
              [("location", "Place")],
              [Column("Blocked", ranked, units.Seconds, 1, width=100),
               Column("Calls", f"{by('location', 'sum', calls)} and on (location) {ranked}",
                      units.LocaleFormat, 0, width=90),
               Column("Calls per step",
                      f"{by('location', 'sum', calls)} / on () group_left () ({steps} > 0) and on (location) {ranked}",
                      units.Short, 2, width=110),
               Column("Each call", f"{by('location', 'sum', time_lost)} / ({by('location', 'sum', calls)} > 0) "
                      f"and on (location) {ranked}", units.Seconds, 2, width=90)],
              sort="Blocked", width=14, height=9, nothing=NOT_COUNTED, runbooks=("host-sync-budget-exceeded",)),
        bars("Time lost by place", "The same as bars: whether one line has most of it.", units.Seconds,
             Query(ranked, "{{location}}", now=True), width=10, colour="orange", decimals=1, nothing=NOT_COUNTED),
        graph("Time lost by place, over time", "Share of the step time, mean of the ranks; the places that lost most in this range. "
              "A new line that appears in the middle of a run is a change of what it does: evaluation, logging.",
              units.PercentUnit,
              [Query(by("location", "sum", rate("gradvane_host_sync_location_seconds_total"))
                     + f"\n/ on () group_left () (sum({rate('gradvane_step_duration_seconds_sum')}) > 0)"
                     + "\nand on (location) topk($topk, " + by(
                         "location", "sum", "increase(" + series("gradvane_host_sync_location_seconds_total")
                         + "[$__range] @ end())") + ")", "{{location}}")],
              Look(width=24, height=9, stacked=True, from_zero=True, has_page=False, many=True, nothing=NOT_COUNTED)),
    ))


def phases() -> Row:
    return Row("Phases, ranks and budget", (
        graph("Host syncs per step, by phase", "As far as the loop marks its phases. A sync in the forward pass "
              "keeps the GPU from running ahead; one after the optimizer costs least.", units.Short,
              [Query(per_step("gradvane_host_syncs_by_phase_total", labels="phase"), "{{phase}}")],
              Look(width=8, stacked=True, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
        graph("Time blocked in a step, by phase", "Mean of the ranks.", units.Seconds,
              [Query(per_step("gradvane_host_sync_phase_seconds_total", labels="phase"), "{{phase}}")],
              Look(width=8, stacked=True, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
        graph("Latest step against the budget", "Host syncs of the latest step that was counted from end to end, and "
              "how many a step may have. Above the budget an incident opens.", units.Short, [
                  Query(series("gradvane_step_host_syncs", TRAINING), "rank {{rank}}"),
                  Query(f"max({series('gradvane_sync_budget', TRAINING)})", "budget")],
              Look(width=8, from_zero=True, colours={"budget": RED}, nothing=NOT_COUNTED,
                   runbooks=("host-sync-budget-exceeded",))),
        graph("Share of the step time, by rank", "A rank that waits less than the others is the one that they wait "
              "for.", units.PercentUnit,
              [Query(share_of_step_time_of_rank("gradvane_host_sync_seconds_total", TRAINING), "rank {{rank}}")],
              Look(from_zero=True, nothing=NOT_COUNTED, runbooks=("straggler-rank",))),
        graph("Steps over the budget", "In each stretch of the graph, by whose budget it is.", units.Short,
              [Query(by("origin", "sum", increase("gradvane_sync_budget_breaches_total")), "{{origin}}")],
              Look(from_zero=True, has_page=False, nothing="No budget is set, or host syncs are not counted.",
                   runbooks=("host-sync-budget-exceeded",))),
    ))


def of_step_time(metric: str) -> str:
    """Its share of the time of steps, by origin."""
    return (f"{by('origin', 'sum', rate(metric))}\n/ on () group_left () "
            f"(sum({rate('gradvane_step_duration_seconds_sum')}) > 0)")


def own() -> Row:
    return Row("What Gradvane itself costs", (
        graph("Host syncs per step, by origin", "The training's, Gradvane's own and the profiler's. Gradvane's "
              "stays at 0.", units.Short,
              [Query(per_step("gradvane_host_syncs_total", WAITED, labels="origin"), "{{origin}}")],
              Look(width=8, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
        graph("Time blocked, by origin", "Of a second of steps, mean of the ranks.", units.PercentUnit,
              [Query(of_step_time("gradvane_host_sync_seconds_total"), "{{origin}}")],
              Look(width=8, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
        graph("Polls per step", "Calls that ask whether something is done and do not wait. Thousands in a step: "
              "somebody spins.", units.Short,
              [Query(per_step("gradvane_device_polls_total", labels="origin"), "{{origin}}")],
              Look(width=8, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
        graph("Time in polls", "Of a second of steps, mean of the ranks.", units.PercentUnit,
              [Query(of_step_time("gradvane_device_poll_seconds_total"), "{{origin}}")],
              Look(width=8, from_zero=True, has_page=False, nothing=NOT_COUNTED)),
        graph("Gradvane's own against its budget", "Of the latest step counted from end to end, largest of the "
              "ranks.", units.Short, [
                  Query(f"max({series('gradvane_step_host_syncs', OURS)})", "in the latest step"),
                  Query(f"max({series('gradvane_sync_budget', OURS)})", "budget")],
              Look(width=16, from_zero=True, at_least=1, has_page=False, nothing=NOT_COUNTED)),
    ), collapsed=True)


def counted() -> Row:
    def source(operator: str) -> str:
        chosen = series("gradvane_sync_source_info", f'source{operator}"cupti|shared"')
        return by("rank, source, reason", "max", chosen)

    return Row("Is it counted?", (
        timeline("Where the counts come from", "Green while host syncs are counted. Grey: they are not, and the "
                 "reason stands in the strip's name; no_cuda is a machine without a GPU.",
                 [Query(source("=~") + "\nor " + source("!~") + " * 0",
                        "rank {{rank}}: {{source}}, {{reason}}")], COUNTED, height=7),
        graph("Time counted and blind", "Share of each second, mean of the ranks. While it is blind (PyTorch's "
              "profiler has the place) host syncs are in no metric.", units.PercentUnit,
              [Query(by("state", "avg", rate("gradvane_sync_coverage_seconds_total")), "{{state}}")],
              Look(stacked=True, from_zero=True, has_page=False, colours={"covered": GREEN, "blind": GREY})),
        graph("Gaps and what was not counted", "Times that counting stopped, and syncs that have no place or no "
              "step. More than a few: raise the limits in the configuration.", units.Short, [
                  Query(f"sum({increase('gradvane_sync_gaps_total')})", "gaps"),
                  Query(by("reason", "sum", increase("gradvane_sync_records_dropped_total")), "dropped: {{reason}}")],
              Look(from_zero=True, has_page=False)),
    ), collapsed=True)


def board() -> Board:
    return Board(SYNCS,
                 "Which calls make the CPU wait for the GPU, which line of code makes them, and what do they cost?",
                 (cost(), places(), phases(), own(), counted()), with_topk=True)
