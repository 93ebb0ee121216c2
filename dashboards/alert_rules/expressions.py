"""The few shapes that the rules are made of.

`max without (...)` joins the series of one process and skips NaN, where a sum would become NaN; labels that
scraping added (pod, namespace) stay.
"""

from __future__ import annotations

from alert_rules.windows import Windows

INCIDENTS = "gradvane_incidents_total"
OPEN = "gradvane_incidents_open"
INFO = "gradvane_incident_info"


def selector(metric: str, *matchers: str) -> str:
    return metric + ("{" + ",".join(matchers) + "}" if matchers else "")


def one_of(label: str, values: tuple[str, ...]) -> str:
    return f'{label}="{values[0]}"' if len(values) == 1 else f'{label}=~"{"|".join(values)}"'


def grew(series: str, windows: Windows) -> str:
    """By how much the counter is above what it was before the window.

    A series that was never seen before counts from 0: increase() says nothing of a counter that is born with
    1. So does one that is lower than it was: it restarted. One that was not scraped for a while counts from its
    last value. The count itself outlives the process by the window.
    """
    now = f"last_over_time({series}[{windows.event}])"
    before = f"last_over_time({series}[{windows.memory}] offset {windows.event})"
    return f"{now} - ({before} <= {now} or {now} * 0)"


def latest(series: str, windows: Windows) -> str:
    """The value, also of a process that is gone by now."""
    return f"last_over_time({series}[{windows.told}])"


def event(series: str, without: str, windows: Windows) -> str:
    """True while the counter rose within the window. increase() sees counters that restarted."""
    # max without () is nothing but the same series without its name.
    return (f"max without ({without}) (increase({series}[{windows.event}])) > 0\n"
            f"or\nmax without ({without}) ({grew(series, windows)}) > 0")


def incident(classes: tuple[str, ...], windows: Windows) -> str:
    """True of a process while an incident is open, and for a window after one opened: it may be over before a
    scrape."""
    which = one_of("class", classes)
    return (f"max without (class) ({selector(OPEN, which)}) > 0\nor\n"
            + event(selector(INCIDENTS, which), "class", windows))


OF_RUN = "job, run"
"""what an alert is of: one for each run, whatever the number of its ranks"""

# The series of the run that the alert is about.
SAME = ("job=%[1]q", "run=%[2]q")
SAME_VALUES = "$labels.job $labels.run"


def of_run(processes: str) -> str:
    """How many processes of each run the expression is true for."""
    return f"count by ({OF_RUN}) (\n{processes}\n)"


def first_of(query: str, field: str) -> str:
    """A template: the sentence `field` for the process that comes first, by step where the series have that label, and
    by rank. A duration is the only number that a template can read from a label; 60 minutes are enough ranks."""
    return ('{{- $first := "" }}{{- $least := 1e18 }}{{- range ' + asked(query) + " }}"
            '{{- $place := printf "%sm%sms" (or .Labels.step "0") (or .Labels.rank "0") | parseDuration }}'
            "{{- if lt $place $least }}{{- $least = $place }}{{- $first = . }}{{- end }}{{- end }}"
            "{{- with $first }} " + field + "{{ end }}")


def asked(query: str) -> str:
    """A query of a template: what `query` is given. `query` holds SAME's placeholders."""
    return f"printf `{' '.join(query.split())}` {SAME_VALUES} | query"


def number(query: str, sentence: str, form: str = 'printf "%.0f"') -> str:
    """The sentence with the query's value for {}, nothing where there is none."""
    value = "{{ . | first | value | " + form + " }}"
    return "{{- with " + asked(query) + " }} " + sentence.replace("{}", value) + "{{ end }}"


def story(classes: tuple[str, ...], windows: Windows) -> str:
    """Where the latest incident began. Of several classes only those that matter now."""
    which = one_of("class", classes)
    info = selector(INFO, which, *SAME)
    query = f"{info} or on (class, instance, rank) {latest(info, windows)}"
    if len(classes) > 1:
        total = selector(INCIDENTS, which, *SAME)
        query = f"({query}) and on (class, instance, rank) ({selector(OPEN, which, *SAME)} > 0"
        query += f" or increase({total}[{windows.event}]) > 0 or {grew(total, windows)} > 0)"
    place = ("{{ if .Labels.param }}{{ if .Labels.element }}element {{ .Labels.element }} of {{ end }}"
             "{{ .Labels.param }}{{ else }}the {{ .Labels.site }}{{ end }}")
    return first_of(
        query, "It began at step {{ .Labels.step }} on rank {{ .Labels.rank }}"
        "{{ if .Labels.kind }}: {{ .Labels.kind }} in " + place +
        "{{ else if .Labels.param }}: {{ .Labels.param }}{{ end }}"
        "{{ if .Labels.group }}, group {{ .Labels.group }}{{ end }}"
        "{{ if .Labels.began_in }}, in the {{ .Labels.began_in }}"
        '{{ if ne .Labels.began_in "update" }} pass{{ end }}{{ end }}'
        "{{ if .Labels.module }}, first seen at module {{ .Labels.module }}{{ end }}.")


WHO = 'Run {{ $labels.run }}, {{ $value }} rank{{ if gt $value 1.0 }}s{{ end }}:'
"""for an expression that of_run() has made"""


def first_rank(processes: str) -> str:
    """The sentence that names the first rank of which `processes` is true. It may hold SAME's placeholders."""
    return first_of(processes, "First rank: {{ .Labels.rank }}.")


def of_worst(query: str) -> str:
    """The largest value among the ranks."""
    return f"max(sum by (instance, rank) ({query}))"


def incidents_so_far(classes: tuple[str, ...], windows: Windows) -> str:
    query = of_worst(latest(selector(INCIDENTS, one_of("class", classes), *SAME), windows))
    return number(query, "Incidents of this kind on one rank since it started: {}.")
