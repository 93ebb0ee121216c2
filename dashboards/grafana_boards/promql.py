"""The few shapes that the queries are made of. Every one of them asks for the processes that were chosen."""

from __future__ import annotations

# Of a Prometheus that scrapes several clusters. Both match series without such a label, as long as all are chosen.
PLACE = 'cluster=~"$cluster",namespace=~"$namespace"'
CHOSEN = PLACE + ',job=~"$job",run="$run",instance=~"$instance",rank=~"$rank"'
SEVERAL = PLACE + ',job=~"$job",run=~"$run",instance=~"$instance",rank=~"$rank"'
"""Of a dashboard on which several runs are chosen."""
PROCESS = "job, instance, run, rank"


def series(metric: str, *matchers: str) -> str:
    return metric + "{" + ",".join((CHOSEN, *matchers)) + "}"


def of_run(metric: str, *matchers: str) -> str:
    """What is of the run and of no single process, as its alerts."""
    return metric + "{" + ",".join(('job=~"$job",run="$run"', *matchers)) + "}"


def rate(metric: str, *matchers: str) -> str:
    return f"rate({series(metric, *matchers)}[$__rate_interval])"


def increase(metric: str, *matchers: str, over: str = "$__rate_interval") -> str:
    return f"increase({series(metric, *matchers)}[{over}])"


def happened(metric: str, *matchers: str) -> str:
    """1 where the counter rose. One that is born with its first event has not risen, so it counts while it is new."""
    counter = series(metric, *matchers)
    return (f"(({counter} unless {counter} offset $__rate_interval) > bool 0\n"
            f"or {increase(metric, *matchers)} > bool 0)")


def steps_rate() -> str:
    """Steps per second; no value where there was no step, so that nothing is divided by 0."""
    return f"({rate('gradvane_steps_total')} > 0)"


def by(labels: str, operation: str, expression: str) -> str:
    return f"{operation} by ({labels}) ({expression})"


def of_gpu(metric: str) -> str:
    """A number of dcgm-exporter's, for the GPUs that hold each rank's parameters: both have the GPU's UUID."""
    return (series("gradvane_device_info") + " * on (uuid) group_left ()\n"
            f'max by (uuid) (label_replace({metric}, "uuid", "$1", "UUID", "(.+)"))')


# A run with one optimizer has no label `optimizer`, and a legend cannot leave out what is not there: `whose` says it all.


def each_rank(metric: str) -> str:
    """`whose` is the rank, and the optimizer where there are several."""
    joined = f'label_join({series(metric)}, "whose", ", optimizer ", "rank", "optimizer")'
    return f'label_replace({joined}, "whose", "$1", "whose", "(.*), optimizer ")'


def each_optimizer(name: str, operation: str, metric: str) -> str:
    """`whose` is the name, and the optimizer where there are several."""
    return of_optimizers(name, by("optimizer", operation, series(metric)))


def of_optimizers(name: str, expression: str) -> str:
    """The same of an expression by optimizer."""
    named = f'label_replace({expression}, "whose", "{name}", "", "")'
    return f'label_replace({named}, "whose", "{name}, optimizer $1", "optimizer", "(.+)")'


def per_step(metric: str, *matchers: str, labels: str = "") -> str:
    """What a step of one process has on the mean, over the processes that were chosen."""
    above = by(labels, "sum", rate(metric, *matchers)) if labels else f"sum({rate(metric, *matchers)})"
    below = f"sum({steps_rate()})"
    return f"{above} / on () group_left () {below}" if labels else f"{above} / {below}"


def per_step_of_rank(metric: str, *matchers: str, labels: str = "rank") -> str:
    """The same, each rank for itself."""
    return (f"{by(labels, 'sum', rate(metric, *matchers))}\n/ on (rank) group_left () "
            f"{by('rank', 'sum', steps_rate())}")


def share_of_step_time(metric: str, *matchers: str) -> str:
    """Seconds of a counter for each second of steps, over the processes that were chosen."""
    return f"sum({rate(metric, *matchers)}) / (sum({rate('gradvane_step_duration_seconds_sum')}) > 0)"


def share_of_step_time_of_rank(metric: str, *matchers: str) -> str:
    return (f"{by('rank, instance', 'sum', rate(metric, *matchers))}\n"
            f"/ ({by('rank, instance', 'sum', rate('gradvane_step_duration_seconds_sum'))} > 0)")


FEW = 12
"""most lines of a chart that has one for each rank, for each optimizer: a thousand tell nothing, and take long to draw"""


def few(expression: str, furthest: str = "up") -> str:
    """The ranks that are furthest `up` or `down` on the mean of the range that is shown, or furthest from the median
    (`apart`). Not by the largest value: a checkpoint that holds up all of them would draw any twelve."""
    apart = f"abs({expression}\n- on (optimizer) group_left () quantile by (optimizer) (0.5, {expression}))"
    pick, what = {"up": ("topk", expression), "down": ("bottomk", expression), "apart": ("topk", apart)}[furthest]
    return (f"({expression})\nand on (rank, instance, optimizer) "
            f"{pick} by (optimizer) ({FEW}, avg_over_time(({what})[$__range:$__interval] @ end()))")


def usual(expression: str) -> str:
    """The median over the range that is shown, the same at every point of it; what grew in the end does not move it."""
    return f"quantile_over_time(0.5, {expression}[$__range] @ end())"


# The codes of a state in a state timeline. `or` keeps all of them: no process is in two states at once.
STATES = ("starting", "running", "stalled", "finished", "failed")


def in_state(state: str) -> str:
    return series("gradvane_run_state", f'state="{state}"') + " == 1"


def state_code(labels: str) -> str:
    parts = (f"({in_state(state)}) * {code}" for code, state in enumerate(STATES, start=1))
    return by(labels, "max", "\n  or ".join(parts))
